"""The wheel of the trainer package, by which an image gets it without a package index."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zipfile
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from distlaunch import __version__, paths, resources
from distlaunch.image.context import ContextFile
from distlaunch.resources import TRAINER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_NAME = f"{TRAINER}-{__version__}-py3-none-any.whl"
_INFO = f"{TRAINER}-{__version__}.dist-info"
_METADATA = f"Metadata-Version: 2.1\nName: {TRAINER}\nVersion: {__version__}\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: distlaunch\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_FIRST_TIME = (1980, 1, 1, 0, 0, 0)  # that a zip file can have
_IMPORT = re.compile(rb"^\s*(?:from|import)\s+" + TRAINER.encode() + rb"\b", re.MULTILINE)


@cache
def trainer_wheel() -> ContextFile:
    """Return the wheel of the installed trainer package, by its path in the build's context.

    The same package gives the same bytes on every machine: files are stored without times.
    """
    package = resources.trainer_package()
    names = sorted(path for path in package.rglob("*") if path.is_file())
    files = {
        f"{TRAINER}/{path.relative_to(package).as_posix()}": path.read_bytes()
        for path in names
        if "__pycache__" not in path.parts
    }
    files |= {f"{_INFO}/METADATA": _METADATA.encode(), f"{_INFO}/WHEEL": _WHEEL.encode()}
    hashes = {path: hashlib.sha256(data).digest() for path, data in files.items()}
    encoded = {path: base64.urlsafe_b64encode(each).decode() for path, each in hashes.items()}
    rows = [f"{path},sha256={encoded[path].rstrip('=')},{len(files[path])}\n" for path in files]
    files[f"{_INFO}/RECORD"] = "".join([*rows, f"{_INFO}/RECORD,,\n"]).encode()
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, _FIRST_TIME)
            entry.create_system = 3  # Unix, also on Windows
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    content = wheel.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    path = (paths.WHEELS / _NAME).as_posix()
    return ContextFile(path, 0o644, len(content), digest, content=content)


def is_needed(folder: Path, files: Iterable[str], module: str) -> bool:
    """Return whether an image with these files of a project must have the trainer package.

    It must if a file or the job's module imports it, and the files do not have their own copy.
    """
    files = set(files)
    if f"{TRAINER}/__init__.py" in files:
        return False
    sources = (folder / path for path in sorted(files) if path.endswith(".py"))
    return module.partition(".")[0] == TRAINER or any(map(_imports_it, sources))


def install_command(code: str) -> str:
    """Return the command that installs the wheel, which is in an image below the code's folder.

    It is copied to where a build by hand has it in the code, so that all builds have equal files.
    """
    # By its name: pip would record a path in the image. pip's variables are ignored: they may name
    # folders with another distribution of the name.
    options = ("--isolated", "install", "--no-deps", "--no-index", "--force-reinstall")
    links = f"--find-links={code}/{paths.WHEELS.as_posix()}"
    return f"python -m pip {' '.join(options)} {links} {TRAINER}=={__version__} --no-cache-dir"


def _imports_it(source: Path) -> bool:
    with suppress(OSError):  # reported where the file is read for the image
        return _IMPORT.search(source.read_bytes()) is not None
    return False
