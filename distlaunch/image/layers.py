"""Layers of an image: the same files give the same bytes.

A layer has no times and no owners. Its digest is the same on every machine with the same zlib.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from distlaunch.errors import ImageError, os_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

    from distlaunch.image.context import Context, ContextFile

_LEVEL = 4  # of gzip: a fifth more time than the quickest, and a tenth less to send


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer in a file."""

    file: Path  # a gzipped tar
    digest: str  # sha256:… of the file
    diff_id: str  # sha256:… of the tar, as in an image's config
    size: int  # of the file
    created_by: str  # the command in the image's history


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder; ImageError is raised if it cannot be written."""
    try:
        with tempfile.TemporaryDirectory(prefix="distlaunch-") as folder:
            yield Path(folder)
    except OSError as error:
        raise ImageError(
            f"a layer cannot be written to {tempfile.gettempdir()} ({os_reason(error)}); free "
            "space there, or set TMPDIR"
        ) from error


def code_layer(context: Context, file: Path, *, root: str = "/app") -> Layer:
    """Write a project's files as a layer, below a folder of the image; refuse changed files."""
    top = root.strip("/")
    above = top.rpartition("/")[0]
    with LayerWriter(file) as layer:
        layer.add_folders(f"{top}/", below=above)
        for each in context.entries:
            path = f"{top}/{each.path}"
            layer.add_folders(path, below=above)
            layer.add_entry(path, each, context.folder)
        return layer.finish(f"COPY . {root}")


class LayerWriter:
    """A layer that is being written; a context manager."""

    def __init__(self, file: Path, *, level: int = _LEVEL) -> None:
        self._path = file
        self._file = _HashingFile(file.open("wb"))
        # The same files give the same bytes, so that a registry that has the layer gets nothing.
        self._gzip = gzip.GzipFile("", "wb", level, self._file, mtime=0)
        self._plain = _HashingFile(self._gzip)
        self._tar = tarfile.open(fileobj=self._plain, mode="w", format=tarfile.PAX_FORMAT)  # type: ignore[call-overload]  # noqa: SIM115
        self._folders: set[str] = set()

    def add_folders(self, path: str, *, below: str = "") -> None:
        """Add the folders above a path that are not in the layer, and are below an existing one."""
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            if folder not in self._folders and not f"{below}/".startswith(f"{folder}/"):
                self.add_folder(folder, 0o755)

    def add_folder(self, path: str, mode: int) -> None:
        self._folders.add(path)
        self._tar.addfile(_entry(path, tarfile.DIRTYPE, mode))

    def add_link(self, path: str, target: str) -> None:
        entry = _entry(path, tarfile.SYMTYPE, 0o777)
        entry.linkname = target
        self._tar.addfile(entry)

    def add_file(self, path: str, mode: int, size: int, content: IO[bytes] | _EntryReader) -> None:
        entry = _entry(path, tarfile.REGTYPE, mode)
        entry.size = size
        self._tar.addfile(entry, cast("IO[bytes]", content))  # which is only read

    def add_entry(self, path: str, entry: ContextFile, folder: Path) -> None:
        """Add an entry of a context below a folder; ImageError is raised if it has changed."""
        if entry.is_folder:
            self.add_folder(path, entry.mode)
        elif entry.target is not None:
            self.add_link(path, entry.target)
        else:
            with _EntryReader(entry, folder) as content:
                self.add_file(path, entry.mode, entry.size, content)

    def finish(self, created_by: str) -> Layer:
        for each in (self._tar, self._gzip, self._file):
            each.close()
        digest, diff_id = self._file.digest, self._plain.digest
        return Layer(self._path, digest, diff_id, self._file.size, created_by)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._gzip, self._file):
            with contextlib.suppress(OSError):  # its last data may not fit
                each.close()


class _HashingFile:
    """A file that is written, with the SHA-256 and the size of the data."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, data: bytes) -> int:
        self._file.write(data)
        self._hash.update(data)
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _entry(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode = kind, mode
    return entry


class _EntryReader:
    """The content of a file of a context as it was hashed; a context manager."""

    def __init__(self, entry: ContextFile, folder: Path) -> None:
        self._entry, self._hash = entry, hashlib.sha256()
        try:
            content = None if entry.content is None else io.BytesIO(entry.content)
            self._file = content or (folder / entry.path).open("rb")
        except OSError as error:
            raise self._changed(os_reason(error)) from error

    def read(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except OSError as error:
            raise self._changed(os_reason(error)) from error
        if len(data) < size:
            raise self._changed("its content differs")
        self._hash.update(data)
        return data

    def _changed(self, reason: str) -> ImageError:
        return ImageError(
            f"{self._entry.path}: changed while it was added to the image ({reason}); "
            "try again when nothing writes to it"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._file as file:
            is_same = not file.read(1) and self._hash.hexdigest() == self._entry.digest
        if kind is None and not is_same:
            raise self._changed("its content differs")
