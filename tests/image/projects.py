"""Projects whose images are built, and the content of an image."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

from distlaunch.image.reference import Reference
from distlaunch.image.registry.client import Registry
from distlaunch.job.model import Cluster, Image, Job, Machine, Pool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distlaunch.image.registry.client import RemoteImage

PROGRAM = """\
import sys
import six
print("six", six.__version__, *sys.argv[1:])
"""
ONE_MACHINE = Cluster(Pool(Machine("n1-standard-4")))


def project(folder: Path, requirements: str = "six==1.16.0\n") -> Path:
    """Write a project that prints its arguments."""
    (folder / "trainer").mkdir(parents=True)
    (folder / "trainer/__init__.py").touch()
    (folder / "trainer/task.py").write_text(PROGRAM)
    (folder / "requirements.txt").write_text(requirements)
    return folder


def job(repository: str | None, base: str = "", **image: Any) -> Job:
    """Return a job of that project."""
    settings = Image(repository, base or None, "requirements.txt", **image)
    return Job("digits", ONE_MACHINE, image=settings)


def content(uri: str, without: str | None = None) -> bytes:
    """Return all that an image is: its manifest, its config, and its layers unpacked.

    Without those of another image, which are large and well known.
    """
    known = layers(without) if without else ()
    with open_image(uri) as (registry, image):
        unpacked = [
            gzip.decompress(b"".join(registry.blob(each["digest"], each["size"]).chunks()))
            for each in image.manifest["layers"]
            if each["digest"] not in known
        ]
    return b"".join([json.dumps([image.manifest, image.config]).encode(), *unpacked])


def image(uri: Reference | str) -> RemoteImage:
    """Return the manifest and config of an image."""
    with open_image(uri) as (_, opened):
        return opened


def files(uri: Reference | str, layer: int = -1) -> dict[str, bytes | str]:
    """Return the files of a layer, by default the last one; symlinks by their targets."""
    with open_image(uri) as (registry, opened):
        blob = opened.manifest["layers"][layer]
        data = b"".join(registry.blob(blob["digest"], blob["size"]).chunks())
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {
            entry.name: tar.extractfile(entry).read() if entry.isreg() else entry.linkname
            for entry in tar
            if not entry.isdir()
        }


def layers(uri: Reference | str) -> list[str]:
    """Return the digests of an image's layers."""
    return [each["digest"] for each in image(uri).manifest["layers"]]


@contextlib.contextmanager
def open_image(uri: Reference | str) -> Iterator[tuple[Registry, RemoteImage]]:
    with Registry(Reference.parse(str(uri))) as registry:
        yield registry, registry.image()
