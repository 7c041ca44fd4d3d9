"""The content of an HTTP request, read piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.emulator.service.answers import Refused

if TYPE_CHECKING:
    from email.message import Message
    from typing import BinaryIO

_PIECE = 1 << 20
_MOST_SKIPPED = 8 << 20


class Content:
    """Reads a request's content and no more, with a length or in chunks.

    Parameters
    ----------
    stream
        The connection.
    headers
        The request's.
    """

    def __init__(self, stream: BinaryIO, headers: Message) -> None:
        self._stream = stream
        self._is_chunked = "chunked" in (headers.get("Transfer-Encoding") or "").lower()
        length = headers.get("Content-Length") or "0"
        self._is_wrong = not (length.isascii() and length.isdecimal())
        self._left = 0 if self._is_chunked or self._is_wrong else int(length)
        self._is_last = not self._is_chunked

    @property
    def is_empty(self) -> bool:
        """Whether the request has no content, by its headers."""
        return not (self._is_chunked or self._is_wrong or self._left)

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, fewer at the end, or all that is left.

        Raises
        ------
        Refused
            If the content ends too early or its length is none.
        """
        if self._is_wrong:
            raise Refused(400, "The Content-Length is not a number.")
        pieces: list[bytes] = []
        wanted = size
        while wanted and (piece := self._piece(wanted if size >= 0 else _PIECE)):
            pieces.append(piece)
            if size >= 0:
                wanted -= len(piece)
        return b"".join(pieces)

    def skip_rest(self) -> bool:
        """Read what nobody wanted; whether the connection is good for another request."""
        if self._is_wrong:
            return False
        skipped = 0
        try:
            while skipped < _MOST_SKIPPED:
                piece = self._piece(_PIECE)
                if not piece:
                    return True
                skipped += len(piece)
        except (Refused, OSError):
            return False
        return False

    def _piece(self, most: int) -> bytes:
        if self._left == 0 and not self._is_last:
            self._next_chunk()
        if self._left == 0:
            return b""
        piece = self._stream.read(min(most, self._left, _PIECE))
        if not piece:
            raise Refused(400, "The request's content ends too early.")
        self._left -= len(piece)
        if self._left == 0 and self._is_chunked:
            self._stream.readline()
        return piece

    def _next_chunk(self) -> None:
        line = self._stream.readline(_PIECE).partition(b";")[0].strip()
        try:
            self._left = int(line, 16)
        except ValueError:
            raise Refused(400, "The request's chunks are broken.") from None
        if self._left == 0:
            self._is_last = True
            while self._stream.readline(_PIECE).strip():
                pass
