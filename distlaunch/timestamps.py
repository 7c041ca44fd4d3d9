"""Google's timestamps: RFC 3339 in UTC, such as ``2026-11-21T17:00:00.123456789Z``."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MINUTE = len("2026-11-21T17:00")
_DURATION = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}  # seconds
_SECOND = re.compile(r"[0-9]{2}(\.[0-9]{1,9})?", re.ASCII)


def parse(text: str) -> float:
    """Return the seconds since 1970, exact to about a microsecond.

    Raises
    ------
    ValueError
        If the text is not a timestamp in UTC.
    """
    second = text[_MINUTE + 1 : -1]
    is_valid = text[-1:] == "Z" and text[_MINUTE : _MINUTE + 1] == ":"
    if not is_valid or _SECOND.fullmatch(second) is None:
        raise ValueError(f"{text!r} is not an RFC 3339 timestamp in UTC")
    return _minute(text[:_MINUTE]) + float(second)


def parse_or(timestamp: object, default: float) -> float:
    """Return the seconds since 1970 of a timestamp, or the default if it is not valid."""
    try:
        return parse(str(timestamp))
    except ValueError:
        return default


def parse_since(text: str) -> float:
    """Return the seconds since 1970 of a time, or of the moment a duration before now.

    Parameters
    ----------
    text
        A duration (``90s``, ``10m``, ``2h``, ``1d``), or a time in ISO 8601, in UTC by default.

    Raises
    ------
    ValueError
        If it is neither.
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


def seconds_between(start: object, end: object) -> float | None:
    """Return the seconds from one timestamp to another, None where either is missing."""
    try:
        return max(parse(str(end)) - parse(str(start)), 0.0)
    except ValueError:
        return None


@lru_cache(maxsize=64)
def _minute(text: str) -> float:
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M").replace(tzinfo=timezone.utc)
    return (moment - _EPOCH).total_seconds()
