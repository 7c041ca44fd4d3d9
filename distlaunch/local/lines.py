"""A task's output: bytes as they come → whole lines, cut where they are too long."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_LINE = 1 << 20  # bytes; a longer line is cut, so that memory stays flat
_CR, _LF = b"\r", b"\n"
_RETURNS_AND_NEWLINE = re.compile(rb"\r+\n")
_RETURNS_AT_START = re.compile(rb"(?m)^\r+")
_RETURNS = re.compile(rb"\r+")


class Lines:
    r"""Gives out whole lines, each ended by ``\n``, however their bytes arrive.

    A line ends with ``\n``, ``\r\n`` or ``\r``. A ``\r`` with no text before it, as progress bars
    begin with, ends nothing. A line of over `longest` bytes is cut.
    """

    def __init__(self, longest: int = _LONGEST_LINE) -> None:
        self._longest = longest
        self._partial = bytearray()  # the start of a line, with returns that may yet end it

    def feed(self, data: bytes) -> bytes:
        """Return the lines that `data` completes."""
        may_end = _LF in data or _CR in data or self._partial.endswith(_CR)
        self._partial += data
        lines = self._take_lines() if may_end else b""
        text = self._partial.rstrip(_CR)
        if len(text) > self._longest:
            *pieces, rest = self._cut(text)
            del self._partial[: len(text) - len(rest)]
            lines += b"".join(piece + _LF for piece in pieces)
        return lines

    def close(self) -> bytes:
        """Return what was left at the end, as a line, or nothing."""
        left = bytes(self._partial.rstrip(_CR))
        self._partial.clear()
        return left + _LF if left else b""

    def _take_lines(self) -> bytes:
        """Remove the lines that have ended; returns at the very end may be part of a newline."""
        text = self._partial.rstrip(_CR)
        end = max(text.rfind(_LF), text.rfind(_CR)) + 1
        lines = bytes(self._partial[:end])
        del self._partial[:end]
        if _CR in lines:
            lines = _RETURNS_AND_NEWLINE.sub(_LF, lines)
            lines = _RETURNS.sub(_LF, _RETURNS_AT_START.sub(b"", lines))
        if len(lines) > self._longest:
            whole = lines.split(_LF)[:-1]
            lines = b"".join(piece + _LF for line in whole for piece in self._cut(line))
        return lines

    def _cut(self, line: bytes | bytearray) -> Iterator[bytes]:
        """Cut a line into pieces that are not too long, but not inside a character of UTF-8."""
        start = 0
        while len(line) - start > self._longest:
            end = start + self._longest
            points = range(end, max(end - 4, start), -1)
            end = next((point for point in points if line[point] & 0xC0 != 0x80), end)
            yield bytes(line[start:end])
            start = end
        yield bytes(line[start:])
