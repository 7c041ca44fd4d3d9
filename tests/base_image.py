"""A base image for tests, made from nothing and put into a registry without an engine.

A minimal Debian with Python and pip, laid out as the official `python` images: what pip installs
lies in /usr/local. Made once in half a minute, then kept in the user's cache folder.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fake_registry import descriptor

from distlaunch.image.reference import Reference
from distlaunch.image.registry.client import Registry
from distlaunch.image.registry.manifests import DOCKER
from distlaunch.image.registry.transport import Blob

SUITE = "bookworm"
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
HOOKS = (
    'chroot "$1" python3 -m venv /usr/local',
    'rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/usr/lib/python3*/test',
)
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = [
    f"PATH={PATH}",
    "LANG=C.UTF-8",
    "PYTHON_VERSION=3.11.2",
]
TAG = "3.11"


@dataclass(frozen=True)
class Layer:
    """The one layer of the base image: a gzipped tar, and the digest of the tar in it."""

    file: Path
    digest: str
    diff_id: str


def layer(cache: Path) -> Layer:
    """Return the base image's layer, made now if it is not in the cache."""
    recipe = repr((SUITE, PACKAGES, LEFT_OUT, HOOKS, pip_conf(), certificates()))
    key = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    file, notes = cache / f"base-{key}.tar.gz", cache / f"base-{key}.json"
    if not notes.exists():
        cache.mkdir(parents=True, exist_ok=True)
        notes.write_text(json.dumps(_make(file)))
    return Layer(file, **json.loads(notes.read_text()))


def push(found: Layer, registry: str) -> str:
    """Put the image into a registry and return its reference."""
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ENVIRONMENT, "Cmd": ["python3"]},
            "rootfs": {"type": "layers", "diff_ids": [found.diff_id]},
            "history": [{"created_by": "mmdebstrap"}],
        }
    ).encode()
    layer = {"mediaType": DOCKER.layer, "size": found.file.stat().st_size, "digest": found.digest}
    manifest = {
        "schemaVersion": 2,
        "mediaType": DOCKER.manifest,
        "config": descriptor(DOCKER.config, config),
        "layers": [layer],
    }
    reference = Reference.parse(f"{registry}/base:{TAG}")
    with Registry(reference) as client:
        client.upload(Blob.of_file(found.file, found.digest, layer["size"]))
        client.upload(Blob.of_bytes(config))
        client.put_manifest(json.dumps(manifest).encode(), DOCKER.manifest, TAG)
    return str(reference)


def certificates() -> str:
    """Return what this machine trusts: behind a proxy of its own, an image has to trust it too."""
    named = [os.environ.get("PIP_CERT"), os.environ.get("SSL_CERT_FILE"), CERTIFICATES]
    for file in filter(None, named):
        if Path(file).exists():
            return Path(file).read_text(encoding="utf-8", errors="replace")
    return ""


def pip_conf() -> str:
    """Return the settings by which pip in an image reaches the package index of this machine."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    kept = ["[global]", f"cert = {CERTIFICATES}", "timeout = 180", "disable-pip-version-check = 1"]
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        if name.endswith(("index-url", "trusted-host")) and "file:" not in value:
            kept.append(f"{name.split('.')[-1]} = {value.strip(chr(39))}")
    return "\n".join(kept) + "\n"


def _make(file: Path) -> dict[str, str]:
    """Make the layer and return its digests."""
    given = {file.with_suffix(".pip"): pip_conf(), file.with_suffix(".crt"): certificates()}
    for source, text in given.items():
        source.write_text(text)
    settings, trusted = given
    hooks = [*HOOKS, f'cp "{settings}" "$1/etc/pip.conf"', f'cp "{trusted}" "$1{CERTIFICATES}"']
    command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={PACKAGES}"]
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    command += [f"--customize-hook={hook}" for hook in hooks]
    half = file.with_suffix(".half")
    try:
        with half.open("wb") as stream:
            notes = _compressed([*command, SUITE, "-"], stream)
        half.rename(file)
    finally:
        for path in (half, *given):
            path.unlink(missing_ok=True)
    return notes


def _compressed(command: list[str], target: BinaryIO) -> dict[str, str]:
    """Compress what a command prints, and return the digests of both."""
    plain, packed = hashlib.sha256(), hashlib.sha256()

    class Hashed:
        def write(self, data: bytes) -> int:
            packed.update(data)
            return target.write(data)

    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as process,
        gzip.GzipFile("", "wb", 1, Hashed(), mtime=0) as out,
    ):
        while data := process.stdout.read(1 << 20):
            plain.update(data)
            out.write(data)
    if process.returncode:
        raise SystemExit(f"mmdebstrap ended with code {process.returncode}")
    return {
        "digest": f"sha256:{packed.hexdigest()}",
        "diff_id": f"sha256:{plain.hexdigest()}",
    }
