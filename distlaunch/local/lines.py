"""A task's output: bytes as they come → whole lines, cut where they are too long."""

from __future__ import annotations

import re

LONGEST_LINE = 1 << 20  # bytes; a longer line is cut, so that memory stays flat

_CR, _LF = b"\r", b"\n"
_RETURNS = re.compile(rb"\r+")
_RETURNS_AND_NEWLINE = re.compile(rb"\r+\n")
_RETURNS_AT_START = re.compile(rb"(?m)^\r+")


class Lines:
    r"""Gives out whole lines, each ended by ``\n``, however their bytes arrive.

    A line ends with ``\n``, ``\r\n`` or ``\r``. A ``\r`` with no text before it, as progress bars
    begin with, ends nothing. A line of over `longest` bytes is cut.
    """

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._partial = bytearray()  # the start of a line, without any end
        self._return_held = False  # one came with no text before it
        self._after_return = False  # one has ended a line; a newline may still belong to it

    def feed(self, data: bytes) -> bytes:
        """Return the lines that `data` completes."""
        data = self._without_rest_of_end(data)
        if _CR in data:
            data = self._with_newlines(data)
        end = data.rfind(_LF) + 1
        if not end:
            self._partial += data
            return self._cut_partial()
        lines = bytes(self._partial) + data[:end] if self._partial else data[:end]
        self._partial = bytearray(data[end:])
        if len(lines) > self._longest:
            lines = self._cut(lines)
        return lines + self._cut_partial()

    def close(self) -> bytes:
        """Return what was left at the end, as a line, or nothing."""
        left, self._partial = bytes(self._partial), bytearray()
        return left + _LF if left else b""

    def _without_rest_of_end(self, data: bytes) -> bytes:
        """Drop what belongs to an end of which the first byte has been dealt with."""
        if not data:
            return data
        if self._return_held:
            self._return_held = False
            return _CR + data
        if self._after_return:
            data = data.lstrip(_CR)
            self._after_return = not data
            return data.removeprefix(_LF)
        return data

    def _with_newlines(self, data: bytes) -> bytes:
        r"""Write every end of a line as ``\n``."""
        body = data.rstrip(_CR)
        if len(body) < len(data):
            self._return_held = body.endswith(_LF) or not (body or self._partial)
            self._after_return = not self._return_held
            data = body if self._return_held else body + _CR
        data = _RETURNS_AND_NEWLINE.sub(_LF, data)
        if self._partial and data.startswith(_CR):
            data = _LF + data.lstrip(_CR)
        return _RETURNS.sub(_LF, _RETURNS_AT_START.sub(b"", data))

    def _cut_partial(self) -> bytes:
        cut = b""
        while len(self._partial) > self._longest:
            point = _cut_point(self._partial, self._longest)
            cut += self._partial[:point] + _LF
            del self._partial[:point]
        return cut

    def _cut(self, lines: bytes) -> bytes:
        whole = []
        for line in lines.splitlines(keepends=True):
            rest = line
            while len(rest) > self._longest + 1:
                point = _cut_point(rest, self._longest)
                whole.append(rest[:point] + _LF)
                rest = rest[point:]
            whole.append(rest)
        return b"".join(whole)


def _cut_point(line: bytes | bytearray, longest: int) -> int:
    """Return the last place up to `longest` that is not inside a character of UTF-8."""
    for point in range(longest, max(longest - 4, 0), -1):
        if line[point] & 0xC0 != 0x80:
            return point
    return longest
