"""A real registry for tests, images made by hand to lie in it, and a door before it that fails."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import http.client
import http.server
import io
import json
import os
import shutil
import socket
import struct
import subprocess
import tarfile
import threading
import time
import uuid
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from distlaunch.image.reference import Reference
from distlaunch.image.registry import blobs, manifests
from distlaunch.image.registry.client import Registry
from distlaunch.image.registry.transport import Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from typing_extensions import Self

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAM = "docker-registry"
QUICK = Patience(connect=5, read=5, delays=(0.01, 0.01, 0.01))
NOBODY = staticmethod(lambda _: None)


def program() -> str | None:
    return shutil.which(PROGRAM, path=PATH)


@contextlib.contextmanager
def serving(folder: Path, *, auth: str = "", tls: str = "") -> Iterator[str]:
    """Start docker-registry on a free port and return HOST:PORT."""
    port = _free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.yml"
    config.write_text(
        "version: 0.1\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'{tls}}}\n"
        "log: {level: error, accesslog: {disabled: true}}\n" + auth
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program() or PROGRAM, "serve", config], stdout=log, stderr=log, env=_quiet()
        )
    try:
        _wait_for(port, process)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def _quiet() -> dict[str, str]:
    return {**os.environ, "OTEL_TRACES_EXPORTER": "none"}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.01)
    raise AssertionError(f"{PROGRAM} did not start")


def fresh(host: str, name: str = "test", tag: str = "latest") -> Reference:
    """Return an image in a repository that nobody else has."""
    return Reference.parse(f"{host}/{name}-{uuid.uuid4().hex[:12]}:{tag}")


def tar_of(files: Mapping[str, bytes | None], *, packed: bool = True) -> bytes:
    """Return a layer; None is a folder, and what begins with '→' a link."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            if content is None:
                entry.type = tarfile.DIRTYPE
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(made.getvalue(), mtime=0) if packed else made.getvalue()


@dataclass
class Recipe:
    """An image made by hand."""

    layers: list[bytes] = field(default_factory=lambda: [tar_of({"etc/base": b"base\n"})])
    config: dict[str, Any] = field(default_factory=dict)
    architecture: str = "amd64"
    oci: bool = False
    says_media_type: bool = True
    history: bool = True

    def push(self, reference: Reference, **kwargs: Any) -> str:
        """Push it, and return its digest."""
        with Registry(reference, patience=QUICK, **kwargs) as registry:
            for each in self.layers:
                registry.send(blobs.BytesSource(each))
            config = json.dumps(self._config()).encode()
            registry.send(blobs.BytesSource(config))
            manifest = json.dumps(self._manifest(config)).encode()
            kind = manifests.OCI_MANIFEST if self.oci else manifests.DOCKER_MANIFEST
            return registry.put(manifest, kind, reference.identifier)

    def _config(self) -> dict[str, Any]:
        plain = [_unpacked(each) for each in self.layers]
        config: dict[str, Any] = {
            "os": "linux",
            "architecture": self.architecture,
            "created": "2026-01-02T03:04:05Z",
            "container": "gone",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [blobs.digest_of(each) for each in plain]},
        }
        if self.history:
            config["history"] = [{"created_by": "ADD base"} for _ in self.layers]
        return config

    def _manifest(self, config: bytes) -> dict[str, Any]:
        of_layer = manifests.OCI_LAYER if self.oci else manifests.DOCKER_LAYER
        of_config = manifests.OCI_CONFIG if self.oci else manifests.DOCKER_CONFIG
        manifest = {
            "schemaVersion": 2,
            "config": descriptor(of_config, config),
            "layers": [descriptor(of_layer, each) for each in self.layers],
        }
        if self.says_media_type:
            manifest["mediaType"] = (
                manifests.OCI_MANIFEST if self.oci else manifests.DOCKER_MANIFEST
            )
        return manifest


def _unpacked(layer: bytes) -> bytes:
    with contextlib.suppress(gzip.BadGzipFile, zlib.error, EOFError):
        return gzip.decompress(layer)
    return layer


def descriptor(media_type: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": blobs.digest_of(data), "size": len(data)}


def push_index(
    reference: Reference, images: Mapping[str, str], *, oci: bool, says_media_type: bool = True
) -> str:
    """Push an index of images that are there, by platform; return its digest."""
    kind = manifests.OCI_INDEX if oci else manifests.DOCKER_LIST
    inner = manifests.OCI_MANIFEST if oci else manifests.DOCKER_MANIFEST
    entries = [
        {
            "mediaType": inner,
            "digest": digest,
            "size": 1,
            "platform": dict(zip(("os", "architecture", "variant"), name.split("/"), strict=False)),
        }
        for name, digest in images.items()
    ]
    index: dict[str, Any] = {"schemaVersion": 2, "manifests": entries}
    if says_media_type:
        index["mediaType"] = kind
    with Registry(reference, patience=QUICK) as registry:
        return registry.put(json.dumps(index).encode(), kind, reference.identifier)


@dataclass
class Request:
    """A request that came to a door."""

    method: str
    path: str
    length: int
    headers: Mapping[str, str]


@dataclass
class Fault:
    """What a door does in place of handing a request on.

    Parameters
    ----------
    status, body, headers
        An answer of its own.
    cut_request, cut_answer
        After how many bytes to break the connection, in what is sent or in what is answered.
    lose
        To hand it on, and break the connection in place of the answer.
    hang
        Seconds without an answer.
    """

    status: int = 0
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_request: int | None = None
    cut_answer: int | None = None
    lose: bool = False
    hang: float = 0.0


class Door:
    """A loopback proxy before a registry that fails as it is told, and keeps what came.

    Parameters
    ----------
    target
        HOST:PORT of the registry; without one only faults answer.
    rule
        Tells the fault for a request, if any; it is asked once for each.
    """

    def __init__(self, target: str, rule: Callable[[Request], Fault | None]) -> None:
        self.requests: list[Request] = []
        self.target = target
        self.rule = rule
        door = self

        class Handler(_Handler):
            pass

        Handler.door = door
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def count(self, method: str, part: str = "") -> int:
        return sum(each.method == method and part in each.path for each in self.requests)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    door: Door

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        request = Request(self.command, self.path, length, dict(self.headers))
        self.door.requests.append(request)
        fault = self.door.rule(request) or Fault()
        if fault.hang:
            time.sleep(fault.hang)
        if fault.status:
            self.rfile.read(length)
            self._tell(fault.status, fault.headers, fault.body)
        elif fault.cut_request is not None:
            self._send_some(self.rfile.read(fault.cut_request), length)
            self._break()
        else:
            self._hand_on(self.rfile.read(length), fault)

    def _hand_on(self, body: bytes, fault: Fault) -> None:
        connection = http.client.HTTPConnection(self.door.target)
        headers = {**dict(self.headers), "Host": self.door.host}
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if fault.lose:
            self._break()
        elif fault.cut_answer is not None:
            self._tell(answer.status, dict(answer.headers), data, fault.cut_answer)
            self.close_connection = True
        else:
            self._tell(answer.status, dict(answer.headers), data)

    def _send_some(self, some: bytes, length: int) -> None:
        """Hand on the beginning of a body, as a connection does that then breaks."""
        with socket.create_connection(self.door.target.split(":")) as plain:
            head = f"{self.command} {self.path} HTTP/1.1\r\nHost: {self.door.host}\r\n"
            plain.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + some)
            plain.shutdown(socket.SHUT_WR)
            plain.settimeout(5)
            with contextlib.suppress(OSError):
                while plain.recv(1 << 16):
                    pass

    def _tell(
        self, status: int, headers: Mapping[str, str], body: bytes, cut: int | None = None
    ) -> None:
        self.send_response(status)
        length = headers.get("Content-Length", str(len(body)))
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "date", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:cut])

    def _break(self) -> None:
        self.wfile.flush()
        # A reset, and no orderly end.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815


def basic(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def query(**words: str) -> str:
    return urlencode(words)
