"""Times as Google writes them: RFC 3339 in UTC."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache

NANOSECONDS = 1_000_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_STAMP = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})([Tt ](?P<time>\d{2}:\d{2}:\d{2})(\.(?P<fraction>\d{1,9}))?"
    r"(?P<zone>[Zz]|[+-]\d{2}:\d{2})?)?",
    re.ASCII,
)


def stamp(nanoseconds: int, *, digits: int = 6) -> str:
    """Return a time as ``2026-11-21T17:00:00.123456Z``.

    Parameters
    ----------
    nanoseconds
        Since 1970.
    digits
        Of the second's fraction; the job service tells 6, the log service 9.
    """
    seconds, rest = divmod(nanoseconds, NANOSECONDS)
    return f"{_whole_second(seconds)}.{rest:09d}"[: digits - 9 or None] + "Z"


@lru_cache(maxsize=64)
def _whole_second(seconds: int) -> str:
    """Return a time without its fraction; there may be many in one second."""
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"


@lru_cache(maxsize=64)
def nanoseconds(text: str) -> int:
    """Return the nanoseconds since 1970 of a time in RFC 3339, or of a day in UTC.

    Raises
    ------
    ValueError
        If it is neither.
    """
    found = _STAMP.fullmatch(text)
    moment = _moment(found) if found else None
    if found is None or moment is None:
        raise ValueError(f"{text!r} is no time in RFC 3339")
    whole = (moment - _EPOCH) // timedelta(seconds=1)
    return whole * NANOSECONDS + int((found["fraction"] or "").ljust(9, "0"))


def _moment(found: re.Match[str]) -> datetime | None:
    """Return a time to the second, None where there is no such day or hour."""
    zone = (found["zone"] or "Z").upper().replace("Z", "+00:00")
    try:
        return datetime.fromisoformat(f"{found['day']}T{found['time'] or '00:00:00'}{zone}")
    except ValueError:
        return None
