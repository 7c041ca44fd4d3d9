"""Google's timestamps: RFC 3339 in UTC, such as ``2026-11-21T17:00:00.123456789Z``."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone

from distlaunch.text import duration

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DURATION = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}  # seconds
_TIMESTAMP = re.compile(r"(.{10}T[0-9:]{8})(\.[0-9]{1,9})?Z", re.ASCII)


def parse(text: str) -> float:
    """Return the seconds since 1970; ValueError is raised if it is not a timestamp in UTC."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an RFC 3339 timestamp in UTC")
    moment = datetime.fromisoformat(match[1]).replace(tzinfo=timezone.utc)
    return moment.timestamp() + float(match[2] or 0)


def parse_or(timestamp: object, default: float) -> float:
    """Return the seconds since 1970 of a timestamp, or the default if it is not valid."""
    try:
        return parse(str(timestamp))
    except ValueError:
        return default


def parse_since(text: str) -> float:
    """Return the seconds since 1970 of a time, or of the moment a duration before now.

    A time is in ISO 8601, in UTC by default, and a duration is ``90s``, ``10m``, ``2h`` or ``1d``;
    ValueError is raised for anything else.
    """
    match = _DURATION.fullmatch(text)
    if match:
        return time.time() - int(match[1]) * _UNITS[match[2]]
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a duration such as 10m nor a time such as 2026-11-21T17:00"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def format(seconds: float) -> str:  # noqa: A001 - used as timestamps.format
    """Return seconds since 1970 as a timestamp; earlier times become 1970."""
    return f"{_EPOCH + timedelta(seconds=max(seconds, 0.0)):%Y-%m-%dT%H:%M:%S.%fZ}"


def clock_time(timestamp: object) -> str:
    """Return a timestamp to the second, as ``2026-11-21 17:00:00 UTC``; empty for None."""
    seconds = len("2026-11-21T17:00:00")
    return f"{timestamp[:seconds].replace('T', ' ')} UTC" if isinstance(timestamp, str) else ""


def local_time(timestamp: str) -> str:
    """Return a timestamp in the time zone of this machine, as ``2026-11-21 18:00:00.123``."""
    moment = datetime.fromtimestamp(parse_or(timestamp, 0.0)).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03}"


def ago(timestamp: object) -> str:
    """Return how long ago a timestamp is in its largest unit, as ``2 h ago``; empty for None."""
    seconds = seconds_between(timestamp, format(time.time()))
    if seconds is None:
        return ""
    count, unit, *_ = duration(seconds).split()
    return f"{float(count):.0f} {unit} ago"


def seconds_between(start: object, end: object) -> float | None:
    """Return the seconds from one timestamp to another, None where either is missing."""
    try:
        return max(parse(str(end)) - parse(str(start)), 0.0)
    except ValueError:
        return None
