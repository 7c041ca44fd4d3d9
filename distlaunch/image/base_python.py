"""The Python of a base image, read from its layers without running it."""

from __future__ import annotations

import re
import tarfile
import tempfile
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from distlaunch.errors import ImageError
from distlaunch.image.registry.manifests import environment_variables
from distlaunch.image.requirements import LINUX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distlaunch.image.registry.client import Registry, RemoteImage
    from distlaunch.image.registry.transport import Blob

_PATH = "/usr/local/bin:/usr/bin:/bin"
_PYTHON = re.compile(r".+/bin/python3\.[0-9]+", re.ASCII)
_PACKAGE = re.compile(
    r"(?:.+/)?lib/python3(?:\.[0-9]+)?/(?:site|dist)-packages/(?P<top>[^/]+)(?P<rest>.*)"
)
_DISTRIBUTION = re.compile(r"(?P<name>[^-/]+)-(?P<version>[^-/]+)(?:-[^/]*)?\.(?:dist|egg)-info")
_LIBC = re.compile(r"(?:usr/)?lib(?:64|/x86_64-linux-gnu)?/libc(?:\.so\.6|-2\.[0-9]+\.so)")
_RELEASE = re.compile(rb"stable release version 2\.([0-9]+)")
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


@dataclass(frozen=True, slots=True)
class BasePython:
    """A Python in an image."""

    version: str  # the last number is 0 if the image does not name it
    prefix: str  # the folder of `bin`, e.g. usr/local
    library: str  # the folder of packages, e.g. usr/local/lib/python3.12/site-packages
    glibc: int  # the minor version of the C library 2.x
    installed: Mapping[str, str]  # versions by normalised names

    @property
    def short(self) -> str:
        """E.g. ``3.12``."""
        return ".".join(self.version.split(".")[:2])

    @property
    def program(self) -> str:
        """E.g. ``/usr/local/bin/python3.12``."""
        return f"/{self.prefix}/bin/python{self.short}"

    @property
    def markers(self) -> dict[str, str]:
        """The values of environment markers (PEP 508)."""
        versions = ("implementation_version", "python_full_version")
        return {**LINUX, **dict.fromkeys(versions, self.version), "python_version": self.short}


def find_python(
    registry: Registry, image: RemoteImage, progress: Callable[[str], None]
) -> BasePython:
    """Read an image's layers and return the first Python on its PATH; refuse it without glibc."""
    name, files = str(registry.repository), _Files()
    layers = image.manifest["layers"]
    for index, each in enumerate(layers, 1):
        progress(
            f"looking for Python in {name}: layer {index} of {len(layers)} "
            f"({each['size'] / 1e6:.1f} MB)"
        )
        files.read_layer(registry.blob(each["digest"], each["size"]), name)
    if files.glibc is None:
        raise ImageError(
            f"{name} does not use glibc, which wheels for Linux need; choose a base of Debian, "
            "e.g. python:3.12-slim, or install Docker"
        )
    env = environment_variables(image.config)
    for folder in env.get("PATH", _PATH).split(":"):
        paths = [
            path for path in files.pythons if f"/{path}".rpartition("/")[0] == folder.rstrip("/")
        ]
        if paths:
            path = max(paths, key=lambda path: int(path.rpartition(".")[2]))
            return files.python(path, env.get("PYTHON_VERSION", ""), files.glibc)
    raise ImageError(
        f"{name} has no Python 3 on its PATH; choose a base with one, e.g. python:3.12-slim, "
        "or install Docker"
    )


@dataclass
class _Files:
    """The relevant files of the layers so far; a layer may remove files of earlier ones."""

    pythons: set[str] = field(default_factory=set)
    packages: set[str] = field(default_factory=set)  # folders of metadata
    glibc: int | None = None

    def read_layer(self, layer: Blob, image: str) -> None:
        with tempfile.TemporaryFile() as file:
            try:
                for chunk in layer.chunks():
                    file.write(chunk)
                file.seek(0)
                with tarfile.open(fileobj=file) as tar:
                    for entry in tar:
                        self._add(entry.name.removeprefix("./"), entry, tar)
            except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
                raise ImageError(
                    f"a layer of {image} cannot be read ({error}); choose a base with gzipped "
                    "layers, or install Docker"
                ) from error

    def _add(self, path: str, entry: tarfile.TarInfo, tar: tarfile.TarFile) -> None:
        folder, _, name = path.rpartition("/")
        package = _PACKAGE.fullmatch(path)
        if name.startswith(_WHITEOUT):
            removed = folder if name == _OPAQUE else f"{folder}/{name.removeprefix(_WHITEOUT)}"
            for paths in (self.pythons, self.packages):
                paths -= {each for each in paths if f"{each}/".startswith(f"{removed}/")}
        elif _PYTHON.fullmatch(path):
            self.pythons.add(path)
        elif package and _DISTRIBUTION.fullmatch(package["top"]):
            self.packages.add(path.removesuffix(package["rest"]))
        elif _LIBC.fullmatch(path) and entry.isreg():
            file = tar.extractfile(entry)
            release = _RELEASE.search(file.read()) if file else None
            self.glibc = int(release[1]) if release else self.glibc

    def python(self, path: str, version: str, glibc: int) -> BasePython:
        prefix, _, minor = path.rpartition("/bin/python3.")
        library = f"{prefix}/lib/python3.{minor}/site-packages"
        if prefix == "usr":  # Debian's Python: packages beside its own are here
            library = f"usr/local/lib/python3.{minor}/dist-packages"
        names = [
            _DISTRIBUTION.fullmatch(each.removeprefix(f"{library}/"))
            for each in self.packages
            if each.startswith(f"{library}/")
        ]
        return BasePython(
            version if version.startswith(f"3.{minor}.") else f"3.{minor}.0",
            prefix,
            library,
            glibc,
            {canonicalize_name(each["name"]): each["version"] for each in names if each},
        )
