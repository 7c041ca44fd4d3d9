"""Cloud Storage on this machine, for TensorFlow's own `gs://` file system.

TensorFlow knows Google's addresses only, but it honours a proxy: this is one that answers in
Google's place, with a certificate that the test trusts. It speaks as much of the JSON API
(https://cloud.google.com/storage/docs/json_api/v1) as TensorFlow does.
"""

from __future__ import annotations

import json
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import trustme

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

HOSTS = ("www.googleapis.com", "storage.googleapis.com")
CHANGED = "2026-01-01T00:00:00.000Z"


@dataclass
class CloudStorage:
    """Buckets in memory."""

    folder: Path
    # Contents by BUCKET/NAME, in the order in which they were written last.
    objects: dict[str, bytes] = field(default_factory=dict)
    # Method and path of each request.
    requests: list[str] = field(default_factory=list)
    # Ends of the names that must not be written.
    refused: tuple[str, ...] = ()
    uploads: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        authority = trustme.CA()
        self._certificate = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(*HOSTS).configure_cert(self._certificate)
        authority.cert_pem.write_to_path(self.folder / "authority.pem")
        handler = type("Handler", (_Handler,), {"storage": self, "certificate": self._certificate})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """What makes TensorFlow come here."""
        return {
            "https_proxy": f"http://127.0.0.1:{self._server.server_address[1]}",
            "no_proxy": "127.0.0.1,localhost",
            "CURL_CA_BUNDLE": str(self.folder / "authority.pem"),
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",
            "NO_GCE_CHECK": "true",
        }

    def put(self, name: str, content: bytes) -> None:
        """Write an object; it becomes the newest."""
        self.objects.pop(name, None)
        self.objects[name] = content

    def names(self, prefix: str) -> list[str]:
        """Return the names behind a prefix, the oldest object first; no folders' markers."""
        names = [name for name in list(self.objects) if name.startswith(prefix)]
        return [name.removeprefix(prefix) for name in names if not name.endswith("/")]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    storage: CloudStorage
    certificate: ssl.SSLContext

    def log_message(self, *_: object) -> None:
        pass

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def do_CONNECT(self) -> None:
        """Answer in place of the requested host."""
        assert self.path.rpartition(":")[0] in HOSTS, self.path
        self.send_response(200)
        self.end_headers()
        self.request = self.certificate.wrap_socket(self.connection, server_side=True)
        self.setup()
        self.close_connection = False

    def _parts(self) -> tuple[list[str], dict[str, str]]:
        url = urlsplit(self.path)
        options = {name: values[-1] for name, values in parse_qs(url.query).items()}
        self.storage.requests.append(f"{self.command} {unquote(url.path)}")
        return [unquote(part) for part in url.path.strip("/").split("/")], options

    def do_GET(self) -> None:
        match self._parts():
            case ["storage", "v1", "b", bucket], _:
                self._answer({"name": bucket, "location": "US"})
            case ["storage", "v1", "b", bucket, "o"], options:
                self._answer(self._listing(bucket, **options))
            case ["storage", "v1", "b", bucket, "o", name], _:
                content = self.storage.objects.get(f"{bucket}/{name}")
                if content is None:
                    self._answer(b"", 404)
                else:
                    self._answer({"size": str(len(content)), "generation": "1", "updated": CHANGED})
            case [bucket, *names], _:
                self._content("/".join([bucket, *names]))

    def _listing(
        self, bucket: str, prefix: str = "", delimiter: str = "", **_: str
    ) -> dict[str, Any]:
        items, prefixes = [], set()
        for name in sorted(self.storage.objects):
            own = name.removeprefix(f"{bucket}/")
            if own == name or not own.startswith(prefix):
                continue
            rest = own.removeprefix(prefix)
            if delimiter and delimiter in rest:
                prefixes.add(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                items.append({"name": own})
        return {"items": items, "prefixes": sorted(prefixes)}

    def _content(self, name: str) -> None:
        content = self.storage.objects.get(name)
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        if content is None:
            self._answer(b"", 404)
        elif int(first) >= max(len(content), 1):
            self._answer(b"", 416)
        else:
            self._answer(content[int(first) : int(last or len(content)) + 1], 206)

    def do_POST(self) -> None:
        self._body()
        match self._parts():
            case ["upload", *_], {"name": name} if name.endswith(self.storage.refused or "\0"):
                self._answer(b"", 403)
            case ["upload", "storage", "v1", "b", bucket, "o"], {"name": name}:
                number = str(len(self.storage.uploads))
                self.storage.uploads[number] = f"{bucket}/{name}"
                place = f"https://www.googleapis.com/upload/{number}"
                self._answer({}, Location=place)
            case ["storage", "v1", "b", bucket, "o", old, "rewriteTo", "b", other, "o", new], _:
                self.storage.put(f"{other}/{new}", self.storage.objects[f"{bucket}/{old}"])
                self._answer({"done": True})

    def do_PUT(self) -> None:
        body = self._body()
        (_, number), _ = self._parts()
        self.storage.put(self.storage.uploads[number], body)
        self._answer({})

    def do_DELETE(self) -> None:
        (*_, bucket, _, name), _ = self._parts()
        known = self.storage.objects.pop(f"{bucket}/{name}", None) is not None
        self._answer(b"", 204 if known else 404)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _answer(self, content: dict[str, Any] | bytes, status: int = 200, **more: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {**more, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
