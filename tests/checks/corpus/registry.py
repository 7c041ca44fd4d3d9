"""A registry that has a base image and nothing else; it takes down what would change it."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def image(architecture: str) -> tuple[bytes, bytes]:
    """Return an image's manifest and its config; of its layer nobody asks."""
    config = {
        "os": "linux",
        "architecture": architecture,
        "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "PYTHON_VERSION=3.12.12"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(b"layer")]},
        "history": [{"created_by": "nobody"}],
    }
    content = json.dumps(config).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG_TYPE, "size": len(content), "digest": digest(content)},
        "layers": [{"mediaType": LAYER, "size": 5, "digest": digest(b"layer")}],
    }
    return json.dumps(manifest).encode(), content


IMAGES = {"python": image("amd64"), "arm": image("arm64")}


class Registry:
    """Listens on loopback at `host`; `changes` are the requests that were no reading."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.daemon_threads = True
        self._http.owner = self
        self.host = f"127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None: ...

    def _read(self) -> None:
        _, _, name, *rest = *self.path.split("/"), "", "", ""
        manifest, config = IMAGES.get(name, (None, None))
        if name == "":
            self._answer(200, "application/json", b"{}")
        elif manifest and config and rest[0] == "manifests":
            self._answer(200, MANIFEST, manifest)
        elif manifest and config and rest[:2] == ["blobs", digest(config)]:
            self._answer(200, "application/octet-stream", config)
        else:
            self._answer(404, "application/json", b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')

    def _change(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.owner.changes.append(f"{self.command} {self.path}")
        self._answer(403, "application/json", b'{"errors": [{"code": "DENIED"}]}')

    def _answer(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Docker-Content-Digest", digest(content))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = _read  # noqa: N815
    do_POST = do_PUT = do_PATCH = do_DELETE = _change  # noqa: N815
