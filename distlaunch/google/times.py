"""Times as Google writes them: RFC 3339 in UTC, as ``2026-11-21T17:00:00.123456789Z``."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MINUTE = len("2026-11-21T17:00")
_SECOND = re.compile(r"[0-9]{2}(\.[0-9]{1,9})?", re.ASCII)


def seconds(text: str) -> float:
    """Return the seconds since 1970, exact to about a microsecond.

    Raises
    ------
    ValueError
        If this is no time of Google's.
    """
    second = text[_MINUTE + 1 : -1]
    is_time = text[-1:] == "Z" and text[_MINUTE : _MINUTE + 1] == ":"
    if not is_time or _SECOND.fullmatch(second) is None:
        raise ValueError(f"{text!r} is no time in RFC 3339, UTC")
    return _minute(text[:_MINUTE]) + float(second)


def stamp(moment: float) -> str:
    """Return seconds since 1970 as Google writes them; times before that are 1970."""
    return f"{_EPOCH + timedelta(seconds=max(moment, 0.0)):%Y-%m-%dT%H:%M:%S.%fZ}"


def between(start: object, end: object) -> float | None:
    """Return the seconds from one time of Google's to another, None where one is not known."""
    try:
        return max(seconds(str(end)) - seconds(str(start)), 0.0)
    except ValueError:
        return None


@lru_cache(maxsize=64)
def _minute(text: str) -> float:
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M").replace(tzinfo=timezone.utc)
    return (moment - _EPOCH).total_seconds()
