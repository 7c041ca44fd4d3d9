"""HTTP on loopback: requests to handlers, and errors in Google's JSON."""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from distlaunch.errors import DistlaunchError, os_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from _typeshed.wsgi import StartResponse, WSGIEnvironment

HOST = "127.0.0.1"

# A page in a browser may have a name of its own resolve to this machine.
_LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
_POLL_INTERVAL = 0.02  # seconds between two checks whether the server is closed
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    415: "INVALID_ARGUMENT",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
}


class ApiError(Exception):
    """The emulator refuses a request; `details` are google.rpc messages as JSON by their type."""

    def __init__(self, code: int, message: str, *, status: str = "", **details: Any) -> None:
        super().__init__(message)
        self.code = code
        status = status or _STATUS.get(code, "UNKNOWN")
        self.body: dict[str, Any] = {"error": {"code": code, "message": message, "status": status}}
        if details:
            self.body["error"]["details"] = [
                {"@type": f"type.googleapis.com/google.rpc.{kind}", **detail}
                for kind, detail in details.items()
            ]


@dataclass(frozen=True, slots=True)
class Route:
    """An API method."""

    method: str
    path: str  # a rule of werkzeug's; its variables are passed to the handler by name
    # Gets the request first; returns the response, a dict for JSON, or raises ApiError.
    handler: Callable[..., Response | dict[str, Any]]
    is_upload: bool = False  # whether the body may be of any content type, not JSON alone


class Server:
    """Listens on a port of 127.0.0.1 from its creation on, and answers from `start` on.

    Port 0 is any free one. `log_line` is called with a line for each request. Unless it `is_open`,
    only who has its token may call it: as the first part of the path, or as an access token.
    """

    def __init__(
        self, port: int, log_line: Callable[[str], None], *, is_open: bool = False
    ) -> None:
        self._token = "" if is_open else secrets.token_hex(16)
        try:
            self._socket = socket.create_server((HOST, port), backlog=128)
        except OSError as problem:
            raise DistlaunchError(
                f"port {port} of {HOST} is not available ({os_reason(problem)}); "
                "choose another with --port, or 0 for any free one"
            ) from None
        self._log_line = log_line
        self._routes = Map(merge_slashes=False)
        self._server = make_server(
            HOST,
            port,
            self._application,
            threaded=True,
            request_handler=_Handler,
            fd=self._socket.fileno(),
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_INTERVAL,), daemon=True
        )

    @property
    def url(self) -> str:
        """The address of the server, with its token."""
        address = f"http://{HOST}:{self._socket.getsockname()[1]}"
        return f"{address}/{self._token}" if self._token else address

    def start(self, routes: Iterable[Route]) -> None:
        """Answer requests to these routes."""
        for route in routes:
            self._routes.add(Rule(route.path, methods=[route.method], endpoint=route))
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()
        self._socket.close()

    def _application(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        first, _, rest = environ["PATH_INFO"][1:].partition("/")
        if self._token and _is_equal(first, self._token):
            environ |= {"SCRIPT_NAME": f"/{first}", "PATH_INFO": f"/{rest}"}
        request = Request(environ)
        response = self._respond(request)
        path = request.full_path.removesuffix("?")
        self._log_line(f"{request.method} {path} {response.status_code}")
        return response(environ, start_response)

    def _respond(self, request: Request) -> Response:
        try:
            answer = self._answer(request)
        except ApiError as error:
            return _json_response(error.body, error.code)
        except HTTPException as error:
            code = error.code or 400
            return _json_response(ApiError(code, error.description or "").body, code)
        except Exception as problem:  # noqa: BLE001 - a bug fails one call, not the emulator
            return _json_response(ApiError(500, f"Emulator error: {problem!r}").body, 500)
        return answer if isinstance(answer, Response) else _json_response(answer)

    def _answer(self, request: Request) -> Response | dict[str, Any]:
        _check_source(request)
        self._check_token(request)
        adapter = self._routes.bind(HOST, path_info=request.path, default_method=request.method)
        try:
            route, arguments = adapter.match()
        except HTTPException:
            raise ApiError(404, f"Method not found: {request.method} {request.path}") from None
        if not route.is_upload:
            _check_content_type(request)
        for name in request.args:  # conditions and filters of Cloud Storage that none here obeys
            if name.startswith("if") or name == "matchGlob":
                raise ApiError(501, f"The emulator has no {name}.")
        answer: Response | dict[str, Any] = route.handler(request, **arguments)
        return answer

    def _check_token(self, request: Request) -> None:
        """Refuse a request without the token: jobs run as the user who started the emulator."""
        sent = request.headers.get("Authorization")
        if not self._token or request.root_path or _is_equal(sent or "", f"Bearer {self._token}"):
            return
        remedy = "use the whole URL that the emulator has printed, or its end as an access token"
        if sent is None:  # not 401, at which Google's anonymous clients try to renew what they lack
            code, text, reason = 403, "Method doesn't allow unregistered callers", "MISSING"
        else:
            code, text, reason = 401, "Request had invalid authentication credentials", "INVALID"
        info = {"reason": f"CREDENTIALS_{reason}", "domain": "googleapis.com"}
        raise ApiError(code, f"{text}: {remedy}.", ErrorInfo=info)


class _Handler(WSGIRequestHandler):
    disable_nagle_algorithm = True

    def log(self, *_: Any) -> None:
        """Log nothing; the application does."""


def _is_equal(sent: str, token: str) -> bool:
    """Compare a token in a time that does not depend on where they differ."""
    return hmac.compare_digest(sent.encode("utf-8", "replace"), token.encode())


def read_json(request: Request) -> dict[str, Any]:
    """Return the body of a request, an empty one as {}."""
    try:
        body = json.loads(request.get_data() or b"{}")
    except (ValueError, RecursionError) as problem:
        raise ApiError(400, f"Invalid JSON payload received. {problem}") from None
    if not isinstance(body, dict):
        raise ApiError(400, "Invalid JSON payload received. Root element must be a message.")
    return body


def _json_response(body: dict[str, Any], code: int = 200) -> Response:
    return Response(json.dumps(body), code, content_type="application/json; charset=UTF-8")


def _check_source(request: Request) -> None:
    """Refuse requests of web pages, also of ones whose host name resolves to this address."""
    host = request.headers.get("Host", HOST)
    if host.rpartition(":")[0] not in _LOCAL_NAMES and host not in _LOCAL_NAMES:
        raise ApiError(403, f"Host {host!r} is not this machine; the emulator serves only that.")
    origin = request.headers.get("Origin")
    site = request.headers.get("Sec-Fetch-Site", "none")
    if origin not in (None, f"http://{host}") or site not in ("none", "same-origin"):
        source = f"Origin: {origin}" if origin else f"Sec-Fetch-Site: {site}"
        raise ApiError(403, f"Requests from web pages are refused ({source}).")


def _check_content_type(request: Request) -> None:
    """Refuse a body that is not declared as JSON.

    A browser sends forms and plain text to other origins without a preflight request.
    """
    has_body = bool(request.content_length) or "Transfer-Encoding" in request.headers
    if has_body and request.mimetype != "application/json":
        content_type = request.mimetype or "none"
        raise ApiError(415, f"Content-Type must be application/json, got {content_type}.")
