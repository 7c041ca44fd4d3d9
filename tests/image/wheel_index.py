"""Wheels in a folder or served to containers, and base images for them."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import http.server
import ipaddress
import threading
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine import Engine

SITE_PACKAGES = "usr/local/lib/python3.11/site-packages"
ON_PATH = {"Env": ["PATH=/usr/local/bin:/usr/bin", "PYTHON_VERSION=3.11.7"]}
BASE_FILES = {
    "usr/local/bin/python3.11": b"",
    "usr/lib/x86_64-linux-gnu/libc.so.6": b"... stable release version 2.36.",
    f"{SITE_PACKAGES}/pip-24.0.dist-info/METADATA": b"",
    f"{SITE_PACKAGES}/old-1.dist-info/METADATA": b"",
}


def write_wheel(
    folder: Path,
    name: str,
    version: str = "1",
    *,
    requires: tuple[str, ...] = (),
    tag: str = "py3-none-any",
    files: dict[str, str | bytes] | None = None,
    scripts: tuple[str, ...] = (),
) -> None:
    """Write a wheel."""
    info = f"{name}-{version}.dist-info"
    lines = [f"Requires-Dist: {each}" for each in requires]
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines, ""]
    content: dict[str, str | bytes] = {
        f"{name}/__init__.py": f"VERSION = {version!r}\n",
        **(files or {}),
    }
    content[f"{info}/METADATA"] = "\n".join(metadata)
    content[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"
    if scripts:
        lines = [f"{each} = {name}:main" for each in scripts]
        content[f"{info}/entry_points.txt"] = "\n".join(["[console_scripts]", *lines])
    rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as archive:
        for path, data in content.items():
            archive.writestr(path, data)


def _digest(data: str | bytes) -> str:
    digest = hashlib.sha256(data.encode() if isinstance(data, str) else data).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


class _Handler(http.server.SimpleHTTPRequestHandler):
    login = ""

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.headers.get("Authorization", "") == self.login:
            super().do_GET()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.end_headers()


@contextlib.contextmanager
def serving(folder: Path, engine: Engine, login: str = "") -> Iterator[tuple[str, int]]:
    """Serve a folder at this machine's address for containers; `login` is NAME:PASSWORD."""
    network = engine.docker(
        "network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Subnet}}"
    )
    gateway = str(next(ipaddress.ip_network(network.stdout.strip()).hosts()))
    header = f"Basic {base64.b64encode(login.encode()).decode()}" if login else ""
    handler = functools.partial(
        type("Handler", (_Handler,), {"login": header}), directory=str(folder)
    )
    with http.server.ThreadingHTTPServer((gateway, 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield gateway, server.server_address[1]
        server.shutdown()
