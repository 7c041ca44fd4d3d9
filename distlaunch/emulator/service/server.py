"""HTTP on loopback: requests in, answers out, and the faults between."""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import parse_qs, urlsplit

from distlaunch.emulator.service.answers import Answer, Refused, Request
from distlaunch.emulator.service.refusals import lacking, refusal
from distlaunch.emulator.service.wire import Content
from distlaunch.errors import DistlaunchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from distlaunch.emulator.faults import FaultyCalls
    from distlaunch.emulator.service.route import Route
    from distlaunch.emulator.service.routes import Routes

HOST = "127.0.0.1"

_NAMES = ("127.0.0.1", "localhost", "[::1]")
_PIECE = 1 << 20
_LOOK = 0.02  # seconds between two looks at whether it is closed


class Server:
    """Listens on a port of 127.0.0.1 from the moment that it is made.

    Parameters
    ----------
    port
        The port, 0 for any that is free.
    calls
        Which calls go wrong.
    tell
        Gets a line for each request.

    Raises
    ------
    DistlaunchError
        If the port cannot be had.
    """

    def __init__(self, port: int, calls: FaultyCalls, tell: Callable[[str], None]) -> None:
        try:
            self._http = _Http(port, calls, tell)
        except OSError as problem:
            why = (problem.strerror or str(problem)).lower()
            raise DistlaunchError(
                f"port {port} of {HOST} cannot be had ({why}); choose another with --port, "
                "or 0 for any that is free"
            ) from None
        self._thread = threading.Thread(target=self._http.serve_forever, args=(_LOOK,), daemon=True)

    @property
    def url(self) -> str:
        """Where it is found."""
        return f"http://{HOST}:{self._http.server_address[1]}"

    def start(self, routes: Routes) -> None:
        """Answer from now on."""
        self._http.routes = routes
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        if self._thread.is_alive():
            self._http.shutdown()
        self._http.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    routes: Routes

    def __init__(self, port: int, calls: FaultyCalls, tell: Callable[[str], None]) -> None:
        super().__init__((HOST, port), _Handler)
        self.calls = calls
        self.tell = tell

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "distlaunch-emulator"
    disable_nagle_algorithm = True
    server: _Http

    def log_message(self, *_: object) -> None:
        """Say nothing of requests that are none."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:  # noqa: ARG002
        request = self.requestline.removesuffix(" HTTP/1.1")
        self.server.tell(f"{request} {int(code)}")

    def _handle(self) -> None:
        content = Content(cast("BinaryIO", self.rfile), self.headers)
        try:
            answer = self._answer(content)
        except Refused as refused:
            answer = refused.answer
        except OSError:
            raise  # the client has hung up
        except Exception as problem:  # noqa: BLE001 - a fault of ours ends one call and no other
            answer = Refused(500, f"The emulator is at fault: {problem!r}").answer
        if answer is not None:
            with closing(answer):
                self.close_connection |= not content.skip_rest()
                self._send(answer)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _handle  # noqa: N815

    def _answer(self, content: Content) -> Answer | None:
        """Return what is answered, None where the connection was closed instead."""
        self._check_host()
        self._check_origin()
        request = self._request(content)
        route = self.server.routes.find(request)
        if not (content.is_empty or route.takes_any_content):
            self._check_content_type()
        fault = self.server.calls.next(route.call)
        if fault is None:
            return self._obey(route)
        match fault.name:
            case "reset":
                self._hang_up()
                return None
            case "lost":
                with suppress(Refused):
                    self._obey(route).close()
                self._hang_up()
                return None
            case "hang":
                self._say_nothing(content)
                return None
            case "quota":
                return self._obey(route, is_over_quota=True)
        raise refusal(fault, route)

    def _obey(self, route: Route, *, is_over_quota: bool = False) -> Answer:
        refused = lacking(self.server.calls.faults.lacks, route)
        if refused is not None:
            raise refused
        return route.answer(is_over_quota)

    def _check_host(self) -> None:
        """Refuse a page in a browser that has led a name of its own to this address."""
        host = self.headers.get("Host", HOST)
        if host.rpartition(":")[0] not in _NAMES and host not in _NAMES:
            raise Refused(403, f"Host {host!r} is not this machine; the emulator is for it alone.")

    def _check_origin(self) -> None:
        """Refuse a request that a browser sends for a page of another origin."""
        origin = self.headers.get("Origin")
        site = self.headers.get("Sec-Fetch-Site", "none")
        own = f"http://{self.headers.get('Host', HOST)}"
        if origin not in (None, own) or site not in ("none", "same-origin"):
            source = f"Origin: {origin}" if origin else f"Sec-Fetch-Site: {site}"
            raise Refused(403, f"Requests from web pages are refused ({source}).")

    def _check_content_type(self) -> None:
        """Refuse a body that is not declared as JSON.

        A browser sends forms and plain text to other origins without asking the server first.
        """
        if self.headers.get_content_type() != "application/json":
            kind = self.headers.get("Content-Type", "none")
            raise Refused(415, f"Content-Type must be application/json, got {kind}.")

    def _request(self, content: Content) -> Request:
        url = urlsplit(self.path)
        query = parse_qs(url.query, keep_blank_values=True)
        headers = {name.lower(): value for name, value in self.headers.items()}
        scheme = headers.get("x-forwarded-proto", "http")
        host = headers.get("x-forwarded-host") or headers.get("host") or HOST
        return Request(
            self.command,
            url.path,
            {name: values[-1] for name, values in query.items()},
            query,
            headers,
            cast("BinaryIO", content),
            f"{scheme}://{host}",
        )

    def _hang_up(self) -> None:
        """Close the connection so that the client sees it reset."""
        self.server.tell(f"{self.command} {self.path} without an answer")
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _say_nothing(self, content: Content) -> None:
        """Wait until the client has had enough."""
        content.skip_rest()
        select.select([self.connection], [], [])
        self.close_connection = True

    def _send(self, answer: Answer) -> None:
        content, headers = answer.content, dict(answer.headers)
        if isinstance(content, dict):
            content = json.dumps(content).encode()
            headers.setdefault("Content-Type", "application/json; charset=UTF-8")
        length = len(content) if isinstance(content, bytes) else answer.length
        self.send_response(answer.status)
        for name, value in headers.items():
            self.send_header(name, _on_one_line(value))
        if answer.status not in (204, 304):
            self.send_header("Content-Length", str(length))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if isinstance(content, bytes):
            if self.command != "HEAD":
                self.wfile.write(content)
        elif self.command != "HEAD":
            self._send_file(content, length)

    def _send_file(self, file: BinaryIO, length: int) -> None:
        while length and (piece := file.read(min(length, _PIECE))):
            self.wfile.write(piece)
            length -= len(piece)


def _on_one_line(value: str) -> str:
    """Return a header's value as it can be sent; it may be what a client said of an object."""
    return " ".join(value.splitlines()).encode("latin-1", "replace").decode("latin-1")
