"""The files of a project that a job runs, where they are copied and not built into an image."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class CodeFile(NamedTuple):
    """A file, a folder or a symlink; one of `source`, `target` or neither is set."""

    path: str  # posix, relative to the folder of the code
    mode: int
    source: Path | None = None
    target: str | None = None  # of a symlink
    digest: str = ""


@dataclass(frozen=True, slots=True)
class CodeFiles:
    """Files by their paths, a folder before what it has."""

    files: tuple[CodeFile, ...]

    @classmethod
    def in_folder(cls, folder: Path) -> CodeFiles:
        """Return the files of an earlier launch; OSError is raised if they cannot be read."""
        return cls(tuple(_in_folder(folder, sorted(folder.rglob("*")))))

    @property
    def digest(self) -> str:
        """A hash of all paths, modes and contents."""
        lines = [f"{file.mode:o} {file.digest} {file.path}\0" for file in self.files]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def sizes(self) -> list[tuple[str, int]]:
        """The paths and bytes of the files, without folders."""
        files = [file for file in self.files if file.source or file.target]
        return [(each.path, each.source.stat().st_size if each.source else 0) for each in files]

    def copy_to(self, folder: Path) -> None:
        """Write the files into a new folder of this user alone; OSError is raised."""
        folder.mkdir(0o700, parents=True)
        for file in self.files:
            path = folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            if file.target is not None:
                path.symlink_to(file.target)
            elif file.source is not None:
                shutil.copyfile(file.source, path)
                path.chmod(file.mode)
            else:
                path.mkdir(exist_ok=True)


def _in_folder(folder: Path, paths: Iterable[Path]) -> Iterable[CodeFile]:
    for path in paths:
        name, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode & 0o777
        if path.is_symlink():
            target = os.readlink(path)  # noqa: PTH115 - Path would normalise it
            yield CodeFile(name, mode, target=target, digest=target)
        elif path.is_dir():
            yield CodeFile(name, mode)
        else:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            yield CodeFile(name, mode, path, digest=digest)
