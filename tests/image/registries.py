"""Docker's registry as a process, and images to push to a registry."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import socket
import subprocess
import tarfile
import time
import uuid
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fake_registry import descriptor

from distlaunch.image.reference import Reference
from distlaunch.image.registry import manifests
from distlaunch.image.registry.client import Registry
from distlaunch.image.registry.transport import Blob, RetryPolicy, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


PROGRAM = "/usr/bin/docker-registry"
QUICK = RetryPolicy(connect=5, read=5, retries=3, delay=0.01)


@contextlib.contextmanager
def serving(folder: Path, *, auth: str = "") -> Iterator[str]:
    """Start docker-registry on a free port and return HOST:PORT."""
    port = _free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.yml"
    config.write_text(
        "version: 0.1\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
        "log: {level: error, accesslog: {disabled: true}}\n" + auth
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, "serve", config],
            stdout=log,
            stderr=log,
            env={**os.environ, "OTEL_TRACES_EXPORTER": "none"},
        )
    try:
        _wait_for(port, process)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


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
    """Return an image in a new repository."""
    return Reference.parse(f"{host}/{name}-{uuid.uuid4().hex[:12]}:{tag}")


def tar_of(files: Mapping[str, bytes | None]) -> bytes:
    """Return a layer; None is a folder."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            entry.size = len(content or b"")
            tar.addfile(entry, io.BytesIO(content or b""))
    return gzip.compress(layer.getvalue(), mtime=0)


@dataclass
class Recipe:
    """An image to push."""

    layers: list[bytes] = field(default_factory=lambda: [tar_of({"etc/base": b"base\n"})])
    config: dict[str, Any] = field(default_factory=dict)
    architecture: str = "amd64"
    oci: bool = False
    has_media_type: bool = True

    def push(self, reference: Reference) -> str:
        """Push it, and return its digest."""
        config = json.dumps(
            {
                "os": "linux",
                "architecture": self.architecture,
                "created": "2026-01-02T03:04:05Z",
                "container": "removed",
                "config": self.config,
                "rootfs": {"type": "layers", "diff_ids": [_diff_id(each) for each in self.layers]},
                "history": [{"created_by": "ADD base"} for _ in self.layers],
            }
        ).encode()
        types = manifests.OCI if self.oci else manifests.DOCKER
        manifest = {
            "schemaVersion": 2,
            "config": descriptor(types.config, config),
            "layers": [descriptor(types.layer, layer) for layer in self.layers],
        } | ({"mediaType": types.manifest} if self.has_media_type else {})
        with Registry(reference, QUICK) as registry:
            for blob in (*self.layers, config):
                registry.upload(Blob.of_bytes(blob))
            return registry.put_manifest(
                json.dumps(manifest).encode(), types.manifest, reference.identifier
            )


def _diff_id(layer: bytes) -> str:
    with contextlib.suppress(gzip.BadGzipFile, zlib.error, EOFError):
        return digest_of(gzip.decompress(layer))
    return digest_of(layer)


def push_index(reference: Reference, images: Mapping[str, str], *, oci: bool) -> str:
    """Push an index of existing images, by platform; return its digest."""
    types = manifests.OCI if oci else manifests.DOCKER
    entries = [
        {
            "mediaType": types.manifest,
            "digest": digest,
            "size": 1,
            "platform": dict(zip(("os", "architecture"), name.split("/"), strict=True)),
        }
        for name, digest in images.items()
    ]
    index = {"schemaVersion": 2, "mediaType": types.index, "manifests": entries}
    with Registry(reference, QUICK) as registry:
        return registry.put_manifest(json.dumps(index).encode(), types.index, reference.identifier)
