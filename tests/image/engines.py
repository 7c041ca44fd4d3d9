"""A container engine that says what it is told to say: for what a real one says only far away."""

from __future__ import annotations

import contextlib
import http.server
import json
import socketserver
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from typing_extensions import Self

VERSION = {"ApiVersion": "1.41", "Version": "20.10.24", "Os": "linux", "Arch": "amd64"}
AMD64 = {"Id": "sha256:1", "Architecture": "amd64", "Os": "linux", "Config": {}}


class Scripted:
    """A context manager; `address` is the engine's.

    Parameters
    ----------
    folder
        Where its socket lies.
    answers
        What is told for a path that ends so: a document, or a list of events (a stream; where it
        ends with None the connection breaks).
    """

    def __init__(self, folder: Path, **answers: Any) -> None:
        socket = folder / "docker.sock"
        self.address = f"unix://{socket}"
        told = {"version": VERSION, "json": AMD64, **answers}

        class Handler(_Handler):
            answers = told

        self._server = _Server(str(socket), Handler)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answers: dict[str, Any]

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # of one who does not wait for the end
            super().handle()

    def address_string(self) -> str:
        return "a test"

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.answers.get(self.path.partition("?")[0].rpartition("/")[2])
        if isinstance(answer, list):
            self._stream(answer)
        elif answer is None:
            self._tell(404, {"message": "page not found"})
        else:
            self._tell(answer.get("status", 200), answer)

    def _tell(self, status: int, document: Any) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: Iterable[Any]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            if event is None:
                self.close_connection = True
                return
            if isinstance(event, threading.Event):
                event.wait(10)
                continue
            data = json.dumps(event).encode() + b"\r\n"
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815
