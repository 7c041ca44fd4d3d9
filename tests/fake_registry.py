"""A container registry in memory: OCI's distribution API, Basic and Bearer login, and faults."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import secrets
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

    Response = tuple[int, bytes, Mapping[str, str]]

SERVICE = "fake registry"
_PATH = re.compile(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs/uploads|blobs)/(?P<key>.*)")


@dataclass
class Request:
    """A request that the registry has received."""

    method: str
    path: str
    length: int
    headers: Mapping[str, str]


@dataclass
class Fault:
    """What the registry does instead of responding as usual."""

    status: int = 0
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    # Close the connection without a response: before the request is handled ("request"), after
    # half of its body was read ("body"), or after it was handled ("response").
    drop: str = ""
    cut: int | None = None  # close the connection after so many bytes of the response's body
    hang: float = 0.0  # seconds to wait first


@dataclass
class Repository:
    """Blobs by digest, and manifests by tag and digest with their media types."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)


class FakeRegistry:
    """Listens on loopback at `host`; may share the repositories of another registry.

    `rule` returns the fault for a request, if any. The login is ``basic``, or ``bearer`` to push;
    """

    def __init__(
        self,
        rule: Callable[[Request], Fault | None] = lambda _: None,
        *,
        login: str = "",
        users: Mapping[str, str] | None = None,
        repositories: dict[str, Repository] | None = None,
        read_only: bool = False,
    ) -> None:
        self.rule = rule
        self.login = login
        self.users = users or {}
        self.repositories = {} if repositories is None else repositories
        self.read_only = read_only
        self.requests: list[Request] = []
        self.token_requests: list[dict[str, list[str]]] = []
        self.tokens: dict[str, dict[str, set[str]]] = {}  # to repository to actions
        self._server = _Server(("127.0.0.1", 0), type("Bound", (_Handler,), {"registry": self}))
        self.host = f"127.0.0.1:{self._server.server_address[1]}"

    def repository(self, name: str) -> Repository:
        return self.repositories.setdefault(name, Repository())

    def put_image(self, name: str, tag: str, config: Mapping[str, Any], layer: bytes) -> str:
        """Store an image of one layer; return the digest of its manifest."""
        from distlaunch.image.registry import manifests

        repository = self.repository(name)
        encoded = json.dumps(config).encode()
        repository.blobs |= {digest_of(encoded): encoded, digest_of(layer): layer}
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": manifests.DOCKER.manifest,
                "config": descriptor(manifests.DOCKER.config, encoded),
                "layers": [descriptor(manifests.DOCKER.layer, layer)],
            }
        ).encode()
        for key in (tag, digest_of(manifest)):
            repository.manifests[key] = (manifests.DOCKER.manifest, manifest)
        return digest_of(manifest)

    def count(self, method: str, part: str = "") -> int:
        return sum(each.method == method and part in each.path for each in self.requests)

    @property
    def changes(self) -> list[str]:
        """The requests that write."""
        return [f"{r.method} {r.path}" for r in self.requests if r.method not in ("GET", "HEAD")]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64  # connections that wait while this machine is busy


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    registry: FakeRegistry

    def log_message(self, *_: object) -> None: ...

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def _respond(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        request = Request(self.command, self.path, length, dict(self.headers))
        fault = self._fault(request)
        time.sleep(fault.hang)
        if fault.drop == "body":
            self.rfile.read(length // 2)
        body = self.rfile.read(length) if fault.drop != "body" else b""
        if fault.drop in ("request", "body"):
            self._reset()
        elif fault.status:
            self._send(fault.status, fault.body, fault.headers)
        else:
            is_token = urlsplit(self.path).path == "/token"
            status, content, headers = (self._issue_token if is_token else self._handle)(body)
            if fault.drop == "response":
                self._reset()
            else:
                self._send(status, content, headers, fault.cut)

    def _fault(self, request: Request) -> Fault:
        if urlsplit(self.path).path == "/token":
            return Fault()
        self.registry.requests.append(request)
        return self.registry.rule(request) or Fault()

    def _handle(self, body: bytes) -> Response:
        url = urlsplit(self.path)
        if denied := self._denied():
            return denied
        if self.command not in ("GET", "HEAD") and self.registry.read_only:
            return _error(403, "DENIED")
        match = _PATH.fullmatch(url.path)
        if match is None:
            return (200, b"{}", {}) if url.path == "/v2/" else _error(404, "NAME_UNKNOWN")
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        repository = self.registry.repository(match["name"])
        if match["kind"] == "manifests":
            return self._manifest(repository, match["key"], body)
        if match["kind"] == "blobs/uploads":
            return self._upload(match["name"], repository, query, body)
        content = repository.blobs.get(match["key"])
        return _error(404, "BLOB_UNKNOWN") if content is None else (200, content, {})

    def _manifest(self, repository: Repository, key: str, body: bytes) -> Response:
        if self.command == "PUT":
            document = json.loads(body)
            blobs = [document["config"], *document["layers"]] if "config" in document else []
            if missing := [b["digest"] for b in blobs if b["digest"] not in repository.blobs]:
                return _error(400, "MANIFEST_BLOB_UNKNOWN", str(missing))
            for name in (key, digest_of(body)):
                repository.manifests[name] = (self.headers["Content-Type"], body)
            return 201, b"", {"Docker-Content-Digest": digest_of(body)}
        if key not in repository.manifests:
            return _error(404, "MANIFEST_UNKNOWN", "manifest unknown")
        media_type, manifest = repository.manifests[key]
        headers = {"Content-Type": media_type, "Docker-Content-Digest": digest_of(manifest)}
        return 200, manifest, headers

    def _upload(
        self, name: str, repository: Repository, query: Mapping[str, str], body: bytes
    ) -> Response:
        if self.command == "POST":
            return 202, b"", {"Location": f"/v2/{name}/blobs/uploads/1?state=1"}
        if digest_of(body) != query["digest"]:
            return _error(400, "DIGEST_INVALID")
        repository.blobs[query["digest"]] = body
        return 201, b"", {"Location": f"/v2/{name}/blobs/{query['digest']}"}

    def _denied(self) -> Response | None:
        authorization = self.headers.get("Authorization", "")
        if self.registry.login == "basic" and not self._user(authorization):
            return _error(401, "UNAUTHORIZED", "login", {"WWW-Authenticate": 'Basic realm="fake"'})
        if self.registry.login != "bearer" or self.path == "/v2/":
            return None
        match = _PATH.match(urlsplit(self.path).path)
        name = match["name"] if match else ""
        actions = ["pull"] if self.command in ("GET", "HEAD") else ["pull", "push"]
        granted = self.registry.tokens.get(authorization.removeprefix("Bearer "), {})
        if actions[-1] in granted.get(name, ()):
            return None
        scope = f"repository:{name}:{','.join(actions)}"
        realm = f"http://{self.registry.host}/token"
        challenge = f'Bearer realm="{realm}",service="{SERVICE}",scope="{scope}"'
        return _error(401, "UNAUTHORIZED", "token", {"WWW-Authenticate": challenge})

    def _issue_token(self, body: bytes) -> Response:
        parameters = parse_qs(urlsplit(self.path).query)
        authorization = self.headers.get("Authorization", "")
        is_user = self._user(authorization)
        if not is_user and authorization:
            return 401, b"{}", {}
        self.registry.token_requests.append(parameters)
        granted: dict[str, set[str]] = {}
        for scope in " ".join(parameters.get("scope", [])).split():
            _, name, actions = scope.split(":")
            allowed = {each for each in actions.split(",") if is_user or each == "pull"}
            granted.setdefault(name, set()).update(allowed)
        token = secrets.token_hex(8)
        self.registry.tokens[token] = granted
        return 200, json.dumps({"token": token}).encode(), {}

    def _user(self, authorization: str) -> bool:
        return authorization in (basic(*pair) for pair in self.registry.users.items())

    def _send(
        self, status: int, content: bytes, headers: Mapping[str, str], cut: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:cut])
        if cut is not None:
            self.close_connection = True

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = _respond  # noqa: N815


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def basic(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def descriptor(media_type: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}


def _error(
    status: int, code: str, message: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
    return status, body, headers or {}
