"""What a container engine is sent for a build: a tar with a Dockerfile and what that copies."""

from __future__ import annotations

import io
import tarfile
import tempfile
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from distlaunch.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from distlaunch.image.context import ContextFile

DOCKERFILE = ".distlaunch-dockerfile"

_IGNORE = ".dockerignore"
_IN_MEMORY = 1 << 24  # bytes of a tar that need no file


@contextmanager
def build_context(
    dockerfile: str, folder: Path, files: Iterable[ContextFile]
) -> Iterator[IO[bytes]]:
    """Give a tar of the files and, as `DOCKERFILE`, of the Dockerfile, which is not copied itself.

    Times and owners are left out, so that the engine's cache goes by what is in the files.

    Parameters
    ----------
    dockerfile
        Its text.
    folder
        Where the files lie.
    files
        What can be copied.

    Raises
    ------
    ImageError
        If a file cannot be read.
    """
    listed = tuple(files)
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as target:
        with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for file in listed:
                if file.path != _IGNORE:
                    _add_file(tar, folder, file)
            _add_text(tar, DOCKERFILE, dockerfile)
            _add_text(tar, _IGNORE, _left_out(folder, listed))
        target.seek(0)
        yield target


def _left_out(folder: Path, files: tuple[ContextFile, ...]) -> str:
    """Return an ignore file that keeps what we add from being copied."""
    if any(file.path == _IGNORE for file in files):
        return f"{(folder / _IGNORE).read_text(encoding='utf-8')}\n{DOCKERFILE}\n"
    return f"{DOCKERFILE}\n{_IGNORE}\n"


def _add_text(tar: tarfile.TarFile, path: str, text: str) -> None:
    data = text.encode()
    entry = tarfile.TarInfo(path)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def _add_file(tar: tarfile.TarFile, folder: Path, file: ContextFile) -> None:
    entry = tarfile.TarInfo(file.path)
    entry.mode = file.mode
    if file.target is not None:
        entry.type, entry.linkname = tarfile.SYMTYPE, file.target
        tar.addfile(entry)
        return
    entry.size = file.size
    try:
        with (folder / file.path).open("rb") as opened:
            tar.addfile(entry, opened)
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise ImageError(f"{file.path}: cannot be read ({why})") from problem
