"""Times as Google writes them: RFC 3339 in UTC."""

from __future__ import annotations

import contextlib
import re
import threading
from datetime import datetime, timedelta, timezone
from functools import lru_cache

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_BELOW_MICROSECONDS = re.compile(r"(\.[0-9]{6})[0-9]{1,3}")


class UniqueClock:
    """Returns the time in UTC, and never the same twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = datetime.min.replace(tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        with self._lock:
            self._last = max(datetime.now(timezone.utc), self._last + timedelta(microseconds=1))
            return self._last


def format_time(moment: datetime) -> str:
    """Return a time in UTC, such as ``2026-11-21T17:00:00.123456Z``."""
    return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"


@lru_cache(maxsize=64)
def parse_time(text: str) -> datetime:
    """Read a time in RFC 3339, to the microsecond, or the start of a day in UTC."""
    in_full = _BELOW_MICROSECONDS.sub(r"\1", text.upper())
    if _DAY.fullmatch(text):
        in_full += "T00:00:00Z"
    with contextlib.suppress(ValueError):
        fraction = ".%f" if "." in in_full else ""
        return datetime.strptime(in_full, f"%Y-%m-%dT%H:%M:%S{fraction}%z")
    raise ValueError(f"{text!r} is not a time in RFC 3339, such as 2026-11-21T17:00:00Z")
