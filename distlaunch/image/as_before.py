"""What the last build found out of a project, for a next one with the same files beside its code.

Reading a job file and filling in templates takes longer than all that a change of code needs. What
came of it is kept with a hash of everything that it can have come of, and used only where that is
the same: our own code, the words of the command line, and the files right in the project's folder
and in its templates. A project that takes in more than these is read anew each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch import __version__, resources
from distlaunch.image.environment import hashed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distlaunch.image.plan import Making

CACHE = ".distlaunch/cache"  # of a project's folder

_OWN_FOLDER, _FILE = CACHE.partition("/")[0], "recipe.json"
_MOST_ENTRIES = 200  # of a folder that is looked through
_LARGEST = 1 << 18  # bytes of a file that can say something of an image
_TEMPLATES = "templates"
# What turns a job file into a recipe; job/catalogue.json says which machines have RDMA.
_OURS = ("job", "image", "render")


@dataclass(frozen=True, slots=True)
class Found:
    """What a job file says of its image, after all."""

    repository: str
    dockerfile: str
    ignore: str


class Glance:
    """A look at all that says what an image is but the code, to tell whether it is as before.

    It is taken before the files are read, so that one that changes meanwhile is read again.

    Parameters
    ----------
    folder
        The project's.
    words
        What of the command line changes a job.
    """

    def __init__(self, folder: Path, words: Sequence[str] = ()) -> None:
        self.folder = folder
        self._file = folder / CACHE / _FILE
        self._key = _key(folder, words)

    def recall(self) -> Found | None:
        """Return what the last build found out, None where that may not be so any more."""
        try:
            kept = json.loads(self._file.read_bytes())
            if self._key is not None and kept.pop("key") == self._key:
                return Found(**kept)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            pass
        return None

    def keep(self, making: Making) -> None:
        """Keep what was found out for the next build, if that can tell whether it is still so."""
        job, recipe = making.job, making.recipe
        if job is None or job.image.repository is None or not _is_all_in_sight(making):
            return
        found = {"repository": job.image.repository, "dockerfile": recipe.dockerfile}
        with suppress(OSError):  # then the next build finds it out again
            _write(self._file, {"key": self._key, "ignore": recipe.ignore, **found})


def _is_all_in_sight(making: Making) -> bool:
    """Whether nothing says what the image is but files that the key is made of."""
    if making.job is None or making.environment is None:
        return False
    named = [*(file.path for file in making.environment.files), *making.job.image.include]
    return not any("/" in path.strip("/") for path in named)


def _key(folder: Path, words: Sequence[str]) -> str | None:
    """Return a hash of all that decides, None where that is too much to look at each time."""
    seen = [*_entries(folder, _MOST_ENTRIES), *_entries(folder / _TEMPLATES, _MOST_ENTRIES)]
    if len(seen) > _MOST_ENTRIES:
        return None
    return hashed([__version__, _own_code(), list(words), seen])


def _entries(folder: Path, most: int) -> Iterator[tuple[str, str]]:
    """Give the entries of a folder, each with what it is, no more than one above `most`."""
    try:
        with os.scandir(folder) as entries:
            others = (entry for entry in entries if entry.name != _OWN_FOLDER)
            listed = [entry for _, entry in zip(range(most + 1), others, strict=False)]
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in sorted(listed, key=lambda entry: entry.name):
        yield entry.name, _content(entry)


def _content(entry: os.DirEntry[str]) -> str:
    if entry.is_dir():
        return "folder"
    if not entry.is_file() or entry.stat().st_size > _LARGEST:
        return "other"
    return hashlib.sha256(Path(entry.path).read_bytes()).hexdigest()


def _own_code() -> list[tuple[str, int, int]]:
    """Return what changes with our own code, which in a checkout has one version for long."""
    package = Path(__file__).parents[1]
    files = [*resources.templates().iterdir()]
    for name in _OURS:
        path = package / name
        files += [*path.rglob("*.py"), *path.rglob("*.json")] if path.is_dir() else [path]
    return sorted((file.name, *_stamp(file)) for file in files)


def _stamp(file: Path) -> tuple[int, int]:
    seen = file.stat()
    return seen.st_mtime_ns, seen.st_size


def _write(file: Path, document: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as half:
        json.dump(document, half)
    Path(half.name).replace(file)
