"""A server on loopback whose replies a test chooses, and a clock that needs no time."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Request:
    """A request."""

    method: str
    path: str
    params: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass(frozen=True)
class Reply:
    """A response."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    breaks: str = ""  # closed ``before`` the response or ``amid`` it, or ``silent`` for a second


def refused(status: int, reason: str = "", message: str = "No.", *details: dict) -> Reply:
    """Return an error in Google's format."""
    error = {"code": status, "message": message, "status": reason, "details": list(details)}
    return Reply(status, {"error": error})


RESET = Reply(breaks="before")
HALF = Reply(body={"name": "x" * 999}, breaks="amid")


def in_turn(*replies: Reply) -> Callable[[Request], Reply]:
    """Reply with one after the other, and with the last one from then on."""
    left = list(replies)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


class Server:
    """Listens on loopback; `answer` returns the replies, and `requests` keeps the requests."""

    def __init__(self, answer: Callable[[Request], Reply], tls: Any = None) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.daemon_threads = True
        self._http.owner = self
        self.port = self._http.server_address[1]
        if tls:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self.url = f"https://localhost:{self.port}" if tls else f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None: ...

    def _handle(self) -> None:
        url = urlsplit(self.path)
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        is_json = "json" in self.headers.get("Content-Type", "")
        request = Request(
            self.command,
            unquote(url.path),
            dict(parse_qsl(url.query)),
            json.loads(text) if text and is_json else text.decode(),
            {name.lower(): value for name, value in self.headers.items()},
        )
        owner = self.server.owner
        owner.requests.append(request)
        reply = owner.answer(request)
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        with suppress(ConnectionError):  # the client has closed the connection
            self._send(reply, body)

    do_GET = do_POST = do_DELETE = _handle  # noqa: N815

    def _send(self, reply: Reply, body: bytes) -> None:
        if reply.breaks in ("", "amid"):
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
        if reply.breaks == "amid":
            self.wfile.write(body[: len(body) // 2])
        elif not reply.breaks:
            self.wfile.write(body)
            return
        elif reply.breaks == "silent":
            time.sleep(1)
        self.wfile.flush()
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        if seconds:
            self.slept.append(seconds)
        self.time += seconds
