"""Docker with fixed responses, for what a real one does only in rare conditions."""

from __future__ import annotations

import contextlib
import http.server
import json
import socketserver
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

VERSION = {"ApiVersion": "1.41", "Version": "20.10.24", "Os": "linux", "Arch": "amd64"}
IMAGE = {"Id": "sha256:1", "Architecture": "amd64", "Os": "linux", "Config": {}}


@contextlib.contextmanager
def scripted_docker(folder: Path, **responses: Any) -> Iterator[str]:
    """Serve responses at a socket in a folder, and yield its address.

    Parameters
    ----------
    responses
        By the last part of a path: a document, or the events of a stream, which breaks at None.
    """

    handler = type("Handler", (_Handler,), {})
    handler.responses = {"version": VERSION, "json": IMAGE, **responses}
    with _Server(str(folder / "docker.sock"), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"unix://{folder}/docker.sock"
        server.shutdown()


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    responses: dict[str, Any]

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # of a client that closes early
            super().handle()

    def address_string(self) -> str:
        return "a test"

    def log_message(self, *_: object) -> None:
        pass

    def _respond(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        response = self.responses.get(self.path.partition("?")[0].rpartition("/")[2])
        if isinstance(response, list):
            self._stream(response)
        elif response is None:
            self._send(404, {"message": "page not found"})
        else:
            self._send(response.get("status", 200), response)

    def _send(self, status: int, document: Any) -> None:
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
            data = json.dumps(event).encode() + b"\r\n"
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_DELETE = _respond  # noqa: N815
