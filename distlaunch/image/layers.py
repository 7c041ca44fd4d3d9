"""A project's files as a layer of an image: the same files give the same bytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from distlaunch.errors import ImageError
from distlaunch.image.tarball import Tarball

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.image.context import Context, ContextFile
    from distlaunch.image.tarball import Digests

_LEVEL = 4  # a fifth more time than the quickest, and a tenth less to send


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer that lies in a file, ready to be sent.

    Parameters
    ----------
    file
        A tar, gzipped.
    digest
        ``sha256:…`` of the file.
    diff_id
        ``sha256:…`` of the tar, by which an image's config knows it.
    size
        Of the file, in bytes.
    created_by
        What the image's history says of it.
    """

    file: Path
    digest: str
    diff_id: str
    size: int
    created_by: str

    @classmethod
    def of(cls, file: Path, digests: Digests, created_by: str) -> Layer:
        """Return the layer that a tarball has become."""
        return cls(file, digests.digest, digests.diff_id, digests.size, created_by)


def code_layer(context: Context, file: Path, *, root: str = "/app") -> Layer:
    """Write a project's files as a layer.

    Folders are made for them, `root` among them; those above it are left as the image has them.

    Parameters
    ----------
    context
        The files.
    file
        Where to write to.
    root
        The folder in the image.

    Raises
    ------
    ImageError
        If a file is no longer what the context says, or `file` cannot be written.
    """
    place = root.strip("/")
    above = place.rpartition("/")[0]
    with Tarball(file, level=_LEVEL) as tarball:
        tarball.add_folders_of(f"{place}/", below=above)
        for each in context.files:
            path = f"{place}/{each.path}"
            tarball.add_folders_of(path, below=above)
            if each.target is not None:
                tarball.add_link(path, each.target)
            else:
                _add(tarball, path, each, context.folder)
        return Layer.of(file, tarball.finish(), f"COPY . {root}")


def _add(tarball: Tarball, path: str, each: ContextFile, folder: Path) -> None:
    try:
        with (folder / each.path).open("rb") as opened:
            content = _Hashed(opened)
            tarball.add_file(path, each.mode, each.size, content)  # type: ignore[arg-type]
            has_more = bool(opened.read(1))
    except EOFError as problem:
        raise _changed(each, "it became shorter") from problem
    except OSError as problem:
        raise _changed(each, (problem.strerror or str(problem)).lower()) from problem
    if has_more or content.hexdigest() != each.digest:
        raise _changed(each, "its content is another")


def _changed(each: ContextFile, why: str) -> ImageError:
    return ImageError(
        f"{each.path}: changed while it was put into the image ({why}); "
        "try again when nothing writes to it"
    )


class _Hashed:
    """A file that hashes what is read of it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        return data

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
