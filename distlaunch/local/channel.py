"""JSON objects, one a line, between the launcher and the host."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

Message = dict[str, Any]

_CHUNK = 1 << 16


class Channel:
    """One end of the stream between the launcher and the host.

    Parameters
    ----------
    stream
        A connected socket.
    """

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self.is_open = True
        self._partial = b""

    def fileno(self) -> int:
        return self.stream.fileno()

    def send(self, message: Message) -> None:
        """Send a message; one for a closed peer is lost; `receive` then reports the end."""
        with contextlib.suppress(OSError):
            self.stream.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[Message]:
        """Wait for more and return what is complete of it; `is_open` turns false at the end."""
        try:
            data = self.stream.recv(_CHUNK)
        except ConnectionError:
            data = b""
        self.is_open = bool(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [json.loads(line) for line in lines]
