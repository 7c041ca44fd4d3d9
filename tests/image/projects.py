"""Projects whose images are built, and the content of an image."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

from distlaunch.image.reference import Reference
from distlaunch.image.registry.client import Registry
from distlaunch.job.model import Cluster, Image, Job, Machine, Pool

if TYPE_CHECKING:
    from pathlib import Path

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
    with Registry(Reference.parse(uri)) as registry:
        image = registry.image()
        unpacked = [
            gzip.decompress(b"".join(registry.blob(each["digest"], each["size"]).chunks()))
            for each in image.manifest["layers"]
            if each["digest"] not in known
        ]
    return b"".join([json.dumps([image.manifest, image.config]).encode(), *unpacked])


def config(uri: str) -> dict[str, Any]:
    with Registry(Reference.parse(uri)) as registry:
        return dict(registry.image().config)


def files(uri: str) -> set[str]:
    """Return the paths of the files in an image's last layer."""
    with Registry(Reference.parse(uri)) as registry:
        *_, last = registry.image().manifest["layers"]
        data = b"".join(registry.blob(last["digest"], last["size"]).chunks())
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {entry.name for entry in tar if entry.isfile()}


def layers(uri: str) -> list[str]:
    """Return the digests of an image's layers."""
    with Registry(Reference.parse(uri)) as registry:
        return [each["digest"] for each in registry.image().manifest["layers"]]
