"""The events that a task's program appends to a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_AT_ONCE = 1 << 20  # bytes read in one go; a longer line than that is no event


class EventFile:
    """Reads what was appended to a file since the last look; the file may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_to = 0
        self._partial = b""

    def poll(self) -> list[dict[str, Any]]:
        """Return the new events; lines that are none are left out, half ones wait for the rest."""
        lines = (self._partial + self._appended()).split(b"\n")
        self._partial = lines.pop()
        if len(self._partial) > _AT_ONCE:
            self._partial = b"\0"  # makes no event of what the line ends with
        return [event for event in map(_event, lines) if event is not None]

    def rest(self) -> Iterator[dict[str, Any]]:
        """Go through all that is new, however much it is."""
        before = -1
        while self._read_to > before:
            before = self._read_to
            yield from self.poll()

    def _appended(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self._read_to)
                data = file.read(_AT_ONCE)
        except OSError:
            return b""
        self._read_to += len(data)
        return data


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict) and isinstance(value.get("event"), str):
        return value
    return None
