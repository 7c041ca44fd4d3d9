"""Projects and wheels to build images of, images to push to a registry, and their content."""

from __future__ import annotations

import base64
import contextlib
import functools
import gzip
import hashlib
import http.server
import io
import ipaddress
import json
import tarfile
import threading
import uuid
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

from fake_registry import basic, descriptor

from distlaunch.image.reference import Reference
from distlaunch.image.registry import manifests
from distlaunch.image.registry.client import Registry
from distlaunch.image.registry.transport import Blob, RetryPolicy, digest_of
from distlaunch.job.model import Cluster, Image, Job, Machine, Pool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from engine import Engine

    from distlaunch.image.registry.client import RemoteImage

NO_DOCKER = "unix:///nowhere.sock"
QUICK = RetryPolicy(connect=5, read=5, retries=3, delay=0.01)
PROGRAM = """\
import sys
import six
print("six", six.__version__, *sys.argv[1:])
"""
SITE_PACKAGES = "usr/local/lib/python3.11/site-packages"
ON_PATH = {"Env": ["PATH=/usr/local/bin:/usr/bin", "PYTHON_VERSION=3.11.7"]}
PYTHON_FILES = {
    "usr/local/bin/python3.11": b"",
    "usr/lib/x86_64-linux-gnu/libc.so.6": b"... stable release version 2.36.",
    f"{SITE_PACKAGES}/pip-24.0.dist-info/METADATA": b"",
    f"{SITE_PACKAGES}/old-1.dist-info/METADATA": b"",
}


# Projects and jobs


def project(folder: Path, requirements: str = "six==1.16.0\n", program: str = PROGRAM) -> Path:
    """Write a project; by default its program prints its arguments."""
    (folder / "trainer").mkdir(parents=True)
    (folder / "trainer/__init__.py").touch()
    (folder / "trainer/task.py").write_text(program)
    (folder / "requirements.txt").write_text(requirements)
    return folder


def job(repository: str | None, base: object = None, **image: Any) -> Job:
    """Return a job of that project."""
    settings = Image(repository, str(base) if base else None, "requirements.txt", **image)
    return Job("digits", Cluster(Pool(Machine("n1-standard-4"))), image=settings)


# The content of images


def content(uri: str, without: str | None = None) -> bytes:
    """Return the manifest, the config and the unpacked layers, without those of another image."""
    known = layers(without) if without else ()
    opened = image(uri)
    data = [
        gzip.decompress(_blob(uri, blob))
        for blob in opened.manifest["layers"]
        if blob["digest"] not in known
    ]
    return b"".join([json.dumps([opened.manifest, opened.config]).encode(), *data])


def image(uri: Reference | str) -> RemoteImage:
    """Return the manifest and config of an image."""
    with Registry(Reference.parse(str(uri))) as registry:
        return registry.image()


def layers(uri: Reference | str) -> list[str]:
    """Return the digests of an image's layers."""
    return [blob["digest"] for blob in image(uri).manifest["layers"]]


def files(uri: Reference | str, layer: int = -1) -> dict[str, bytes | str]:
    """Return the files of a layer, by default the last one; symlinks by their targets."""
    data = _blob(uri, image(uri).manifest["layers"][layer])
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {
            entry.name: tar.extractfile(entry).read() if entry.isreg() else entry.linkname
            for entry in tar
            if not entry.isdir()
        }


def opened(where: Reference | str) -> Registry:
    """Return a client that retries soon, of an image or of a new repository at a host."""
    return Registry(fresh(where) if isinstance(where, str) else where, QUICK)


def _blob(uri: Reference | str, blob: Mapping[str, Any]) -> bytes:
    with Registry(Reference.parse(str(uri))) as registry:
        return b"".join(registry.blob(blob["digest"], blob["size"]).chunks())


# Images to push


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


BASE_LAYER = tar_of({"etc/base": b"base\n"})


def push(
    reference: Reference,
    layers: Sequence[bytes] = (BASE_LAYER,),
    config: Mapping[str, Any] | None = None,
    architecture: str = "amd64",
    *,
    oci: bool = False,
    has_media_type: bool = True,
) -> str:
    """Push an image of these layers, and return its digest."""
    document = {
        "os": "linux",
        "architecture": architecture,
        "created": "2026-01-02T03:04:05Z",
        "container": "removed",
        "config": config or {},
        "rootfs": {"type": "layers", "diff_ids": [_diff_id(layer) for layer in layers]},
        "history": [{"created_by": "ADD base"} for _ in layers],
    }
    encoded = json.dumps(document).encode()
    types = manifests.OCI if oci else manifests.DOCKER
    manifest = {
        "schemaVersion": 2,
        "config": descriptor(types.config, encoded),
        "layers": [descriptor(types.layer, layer) for layer in layers],
    } | ({"mediaType": types.manifest} if has_media_type else {})
    return _put(reference, manifest, types.manifest, *layers, encoded)


def _diff_id(layer: bytes) -> str:
    with contextlib.suppress(gzip.BadGzipFile, zlib.error, EOFError):
        return digest_of(gzip.decompress(layer))
    return digest_of(layer)


def push_index(reference: Reference, digests: Mapping[str, str], *, oci: bool) -> str:
    """Push an index of existing images, by architecture of Linux; return its digest."""
    types = manifests.OCI if oci else manifests.DOCKER
    entries = [
        {
            "mediaType": types.manifest,
            "digest": digest,
            "size": 1,
            "platform": {"os": "linux", "architecture": architecture},
        }
        for architecture, digest in digests.items()
    ]
    index = {"schemaVersion": 2, "mediaType": types.index, "manifests": entries}
    return _put(reference, index, types.index)


def _put(reference: Reference, manifest: Mapping[str, Any], kind: str, *blobs: bytes) -> str:
    with Registry(reference, QUICK) as registry:
        for blob in blobs:
            registry.upload(Blob.of_bytes(blob))
        return registry.put_manifest(json.dumps(manifest).encode(), kind, reference.identifier)


# Wheels


def write_wheel(
    folder: Path,
    name: str,
    version: str = "1",
    *,
    requires: tuple[str, ...] = (),
    tag: str = "py3-none-any",
    files: Mapping[str, str | bytes] | None = None,
    scripts: tuple[str, ...] = (),
) -> None:
    """Write a wheel."""
    info = f"{name}-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
    entry_points = ["[console_scripts]", *(f"{script} = {name}:main" for script in scripts)]
    content = {
        f"{name}/__init__.py": f"VERSION = {version!r}\n",
        **(files or {}),
        f"{info}/METADATA": "\n".join([*metadata, ""]),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/entry_points.txt": "\n".join(entry_points),
    }
    rows = [f"{path},sha256={_hash_of(data)},{len(data)}" for path, data in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as archive:
        for path, data in content.items():
            archive.writestr(path, data)


def _hash_of(data: str | bytes) -> str:
    digest = hashlib.sha256(data.encode() if isinstance(data, str) else data).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


class _Handler(http.server.SimpleHTTPRequestHandler):
    login = ""

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        if self.headers.get("Authorization", "") == self.login:
            super().do_GET()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.end_headers()


@contextlib.contextmanager
def serving(folder: Path, engine: Engine, *login: str) -> Iterator[tuple[str, int]]:
    """Serve a folder at this machine's address for containers; `login` is NAME, PASSWORD."""
    network = engine.docker(
        "network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Subnet}}"
    )
    gateway = str(next(ipaddress.ip_network(network.stdout.strip()).hosts()))
    bound = type("Handler", (_Handler,), {"login": basic(*login) if login else ""})
    handler = functools.partial(bound, directory=str(folder))
    with http.server.ThreadingHTTPServer((gateway, 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield gateway, server.server_address[1]
        finally:
            server.shutdown()
