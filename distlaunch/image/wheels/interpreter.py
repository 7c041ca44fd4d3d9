"""The Python of an image, found out from its layers without running it."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from contextlib import closing
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, cast

from distlaunch.errors import ImageError
from distlaunch.image import cuda
from distlaunch.image.registry.config import environment_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from distlaunch.image.registry.blobs import Source
    from distlaunch.image.registry.client import Registry, RemoteImage

_PATH = "/usr/local/bin:/usr/bin:/bin"
_PYTHON = re.compile(r"(?P<prefix>.+)/bin/python3\.(?P<minor>[0-9]+)", re.ASCII)
_LIBRARY = re.compile(
    r"(?P<folder>(?:.+/)?lib/python3(?:\.[0-9]+)?/(?:site|dist)-packages)/([^/]+)"
)
_DISTRIBUTION = re.compile(r"(?P<name>[^-/]+)-[^/]*\.(?:dist|egg)-info", re.ASCII)
_LIBC = re.compile(r"(?:usr/)?lib(?:64|/x86_64-linux-gnu)?/libc(?:\.so\.6|-2\.[0-9]+\.so)")
_MUSL = re.compile(r"(?:usr/)?lib/ld-musl-")
_RELEASE = re.compile(rb"stable release version 2\.([0-9]+)")
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_OLDEST_GLIBC = 17  # of manylinux2014, where none was found out


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python in an image.

    Parameters
    ----------
    version
        As ``3.12.4``; the last number is 0 where the image doesn't tell it.
    prefix
        The folder that ``bin`` lies in, as ``usr/local``.
    library
        Where packages go, as ``usr/local/lib/python3.12/site-packages``.
    glibc
        The minor version of the system's C library 2.x.
    entries
        What lies in `library`.
    cuda_libraries
        The paths of NVIDIA's libraries in `library`.
    """

    version: str
    prefix: str
    library: str
    glibc: int
    entries: frozenset[str] = frozenset()
    cuda_libraries: frozenset[str] = frozenset()

    @property
    def short(self) -> str:
        """As ``3.12``."""
        return ".".join(self.version.split(".")[:2])

    @property
    def program(self) -> str:
        """Where it lies, as ``/usr/local/bin/python3.12``."""
        return f"/{self.prefix}/bin/python{self.short}"


def find_interpreter(
    registry: Registry, image: RemoteImage, progress: Callable[[str], None] = lambda _: None
) -> Interpreter:
    """Look through an image's layers for the Python that is first on its PATH.

    The layers are read as they come, and not kept.

    Raises
    ------
    ImageError
        If there is none, or the image is none of glibc's.
    """
    found = _Found()
    layers = image.manifest["layers"]
    for index, each in enumerate(layers, 1):
        progress(
            f"looking for Python in {registry.repository}: layer {index} of {len(layers)} "
            f"({each['size'] / 1e6:.1f} MB)"
        )
        found.look_through(registry.blob(each["digest"], each["size"]), str(registry.repository))
    return found.interpreter(environment_variables(image.config), str(registry.repository))


@dataclass
class _Found:
    """What was found in the layers so far; later ones may take away what earlier ones had."""

    pythons: dict[str, int] = field(default_factory=dict)  # path → minor version
    libraries: dict[str, set[str]] = field(default_factory=dict)  # folder → what lies in it
    cuda_libraries: set[str] = field(default_factory=set)
    glibc: int | None = None
    is_musl: bool = False

    def look_through(self, layer: Source, image: str) -> None:
        try:
            with closing(layer.read_from(0)) as chunks:
                reader = _Reader(chunks)
                with tarfile.open(fileobj=_plain(reader, image), mode="r|", bufsize=1 << 20) as tar:
                    for entry in tar:
                        self._see(entry.name.removeprefix("./"), entry, tar)
                reader.drain()
        except (tarfile.TarError, zlib.error, EOFError, OSError) as problem:
            raise ImageError(
                f"a layer of {image} cannot be read ({problem}); without an engine the base has to "
                "be an image with gzipped layers, so choose another or install Docker"
            ) from problem

    def _see(self, path: str, entry: tarfile.TarInfo, tar: tarfile.TarFile) -> None:
        folder, _, name = path.rpartition("/")
        if name == _OPAQUE:
            self._forget(folder)
        elif name.startswith(_WHITEOUT):
            self._forget(f"{folder}/{name.removeprefix(_WHITEOUT)}")
        elif python := _PYTHON.fullmatch(path):
            self.pythons[path] = int(python["minor"])
        elif library := _LIBRARY.match(path):
            self.libraries.setdefault(library["folder"], set()).add(library[2])
            if cuda.is_library(path.removeprefix(f"{library['folder']}/")):
                self.cuda_libraries.add(path)
        elif _LIBC.fullmatch(path) and entry.isreg():
            self._see_libc(tar.extractfile(entry))
        elif _MUSL.match(path):
            self.is_musl = True

    def _see_libc(self, file: IO[bytes] | None) -> None:
        release = _RELEASE.search(file.read()) if file else None
        if release:
            self.glibc = int(release[1])

    def _forget(self, path: str) -> None:
        for python in [each for each in self.pythons if f"{each}/".startswith(f"{path}/")]:
            del self.pythons[python]
        self.cuda_libraries -= {
            each for each in self.cuda_libraries if f"{each}/".startswith(f"{path}/")
        }
        for folder, entries in self.libraries.items():
            if f"{folder}/".startswith(f"{path}/"):
                entries.clear()
            elif path.startswith(f"{folder}/"):
                entries.discard(path.removeprefix(f"{folder}/").split("/")[0])

    def interpreter(self, env: Mapping[str, str], image: str) -> Interpreter:
        if self.is_musl and self.glibc is None:
            raise ImageError(
                f"{image} has musl for its C library, for which hardly a package has a wheel; "
                "choose a base of Debian's, as python:3.12-slim, or install Docker"
            )
        for folder in env.get("PATH", _PATH).split(":"):
            for path, minor in sorted(self.pythons.items(), key=lambda each: -each[1]):
                if f"/{path.rpartition('/')[0]}" == folder.rstrip("/"):
                    return self._interpreter(path, minor, env)
        raise ImageError(
            f"{image} has no Python 3 on its PATH; choose a base with one, as python:3.12-slim, "
            "or install Docker"
        )

    def _interpreter(self, path: str, minor: int, env: Mapping[str, str]) -> Interpreter:
        prefix = path.removesuffix(f"/bin/python3.{minor}")
        library = f"{prefix}/lib/python3.{minor}/site-packages"
        if library not in self.libraries and prefix in ("usr", "usr/local"):
            # Debian's own Python looks for what was installed beside it here.
            library = f"usr/local/lib/python3.{minor}/dist-packages"
        told = env.get("PYTHON_VERSION", "")
        return Interpreter(
            version=told if told.startswith(f"3.{minor}.") else f"3.{minor}.0",
            prefix=prefix,
            library=library,
            glibc=_OLDEST_GLIBC if self.glibc is None else self.glibc,
            entries=frozenset(self.libraries.get(library, ())),
            cuda_libraries=frozenset(
                each.removeprefix(f"{library}/")
                for each in self.cuda_libraries
                if each.startswith(f"{library}/")
            ),
        )


def distribution(entry: str) -> str | None:
    """Return the normalised name of the package whose ``dist-info`` an entry is (PEP 503)."""
    found = _DISTRIBUTION.fullmatch(entry)
    return re.sub(r"[-_.]+", "-", found["name"]).lower() if found else None


def _plain(reader: _Reader, image: str) -> IO[bytes]:
    """Return a layer's tar, whether it is gzipped or not."""
    buffered = io.BufferedReader(reader, 1 << 20)
    magic = buffered.peek(4)[:4]
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        raise ImageError(
            f"the layers of {image} are packed with zstd, which can be read by an engine only; "
            "install Docker, or choose another base"
        )
    packed = magic.startswith(b"\x1f\x8b")
    return cast("IO[bytes]", gzip.GzipFile(fileobj=buffered) if packed else buffered)


class _Reader(io.RawIOBase):
    """Chunks of bytes as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = memoryview(chunk)
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size

    def drain(self) -> None:
        """Read what is behind the tar's end, so that all of the blob is verified."""
        for _ in self._chunks:
            pass
