"""The files that go into an image, and a digest that changes only with them."""

from __future__ import annotations

import errno
import hashlib
import heapq
import os
import stat
import sys
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from distlaunch.errors import ContextError, Diagnostic, DistlaunchError, os_reason
from distlaunch.image import secrets
from distlaunch.image.ignore_matcher import IgnoreRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LARGE = 50_000_000  # bytes from which the size of a context is reported
_LARGEST = 5  # files that are then named
_BLOCK = 1 << 20  # bytes that are read and scanned at once
_EXCLUDE = "exclude it in .dockerignore"
_LFS = b"version https://git-lfs.github.com/spec/v1\n"  # a pointer's begin; it has 120 to 200 bytes


class ContextFile(NamedTuple):
    """A file or folder of the context, or a symlink whose target is in the context."""

    path: str  # posix, relative to the context's folder
    mode: int  # see `_mode`; 0o777 for a symlink
    size: int = 0  # bytes of its content, 0 for a symlink
    digest: str = ""  # hexadecimal SHA-256 of its content, or of a symlink's target
    target: str | None = None  # a symlink's target as written
    content: bytes | None = None  # of a file that is not in the context's folder
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """The files and folders of a folder that go into an image, each sorted by path."""

    folder: Path
    files: tuple[ContextFile, ...]
    digest: str  # hexadecimal SHA-256 over path, mode and content, without times and owners
    size: int  # bytes of all files
    folders: tuple[ContextFile, ...] = ()
    lfs_pointers: tuple[str, ...] = ()  # paths of files whose content is in Git LFS

    @property
    def entries(self) -> list[ContextFile]:
        """Files and folders by path, a folder before what it has."""
        return sorted((*self.folders, *self.files), key=attrgetter("path"))

    def report(self) -> Diagnostic | None:
        """Return the size of a large context and its largest files, None if it is not large."""
        if self.size < LARGE:
            return None
        largest = heapq.nlargest(_LARGEST, self.files, key=attrgetter("size"))
        names = ", ".join(f"{file.path} ({_megabytes(file.size)})" for file in largest)
        size = f"{_megabytes(self.size)} in {len(self.files):,} files"
        remedy = "exclude what the program does not need in .dockerignore"
        return Diagnostic(f"image context is {size}; largest: {names}", remedy)


def read_context(folder: Path, ignore: str) -> Context:
    """Read the files of a folder that the text of an ignore file does not exclude.

    As in Docker, a folder is included although all of its files are excluded. The ignore file and
    the Dockerfile are included unless it excludes them. Its comment
    ``# distlaunch: allow-secret PATH`` includes a file even if it contains a secret.

    ContextError has a problem for each file that cannot or must not go into an image: unreadable
    files, sockets and devices, symlinks that leave the folder, keys and other secrets.
    """
    reader = _FileReader(folder, secrets.allowed(ignore))
    for path, entry in _walk(folder, IgnoreRules(ignore), reader.refuse):
        reader.add(path, entry)
    if reader.problems:
        raise ContextError(problems=[problem for _, problem in sorted(reader.problems.items())])
    # File systems list folders in orders of their own, and the digest is of this one.
    files = tuple(sorted(reader.files, key=attrgetter("path")))
    folders = tuple(sorted(reader.folders.values(), key=attrgetter("path")))
    size = sum(map(attrgetter("size"), files))
    pointers = tuple(sorted(reader.lfs_pointers))
    return Context(folder, files, _digest_of([*files, *folders]), size, folders, pointers)


def paths(folder: Path, ignore: str) -> list[str]:
    """Return the paths of the files that an ignore file does not exclude, readable or not."""
    entries = _walk(folder, IgnoreRules(ignore), lambda *_: None)
    return [path for path, entry in entries if not entry.is_dir(follow_symlinks=False)]


def _walk(
    folder: Path, rules: IgnoreRules, refuse: Callable[[str, str, str], None]
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield what is included; an ignored folder is entered only if a pattern requires it."""
    folders = [("", rules.root)]
    while folders:
        above, matches_above = folders.pop()
        try:
            entries = list(os.scandir(folder / above))
        except OSError as problem:
            if not above:
                what, remedy = _unreadable(problem)
                raise DistlaunchError(what, where=str(folder), remedy=remedy) from None
            refuse(above.removesuffix("/"), *_unreadable(problem))
            continue
        for entry in entries:
            path = above + entry.name
            ignored, matches = rules.match(path, matches_above)
            if not ignored:
                yield path, entry
            is_entered = not ignored or rules.may_include_below(path)
            if is_entered and entry.is_dir(follow_symlinks=False):
                folders.append((f"{path}/", matches))


class _FileReader:
    """Reads files and collects the problems with them."""

    def __init__(self, folder: Path, allowed_secrets: frozenset[str]) -> None:
        self.files: list[ContextFile] = []
        self.folders: dict[str, ContextFile] = {}
        self.lfs_pointers: list[str] = []
        self.problems: dict[str, Diagnostic] = {}
        self._allowed_secrets = allowed_secrets
        self._root = os.path.realpath(folder)

    def refuse(self, path: str, what: str, remedy: str) -> None:
        """Record why a file cannot go into the image."""
        shown = path.encode("utf-8", "backslashreplace").decode()
        shown = shown if shown.isprintable() else repr(shown)
        self.problems[path] = Diagnostic(what, remedy, shown)

    def add(self, path: str, entry: os.DirEntry[str]) -> None:
        """Read a file, or record why it cannot go into the image."""
        try:
            status = entry.stat(follow_symlinks=False)
            if not _is_utf8(path):
                self.refuse(path, "its name is not UTF-8", "rename it")
            elif stat.S_ISREG(status.st_mode):
                self._add_file(path, status)
            elif stat.S_ISDIR(status.st_mode):
                self.folders[path] = ContextFile(path, _mode(status), is_folder=True)
            elif stat.S_ISLNK(status.st_mode):
                self._add_symlink(path)
            else:
                self.refuse(path, "is a pipe, a socket or a device", _EXCLUDE)
        except OSError as problem:
            self.refuse(path, *_unreadable(problem))

    def _add_file(self, path: str, status: os.stat_result) -> None:
        is_allowed = path in self._allowed_secrets
        digest, start, secret = "", b"", None if is_allowed else secrets.by_name(path)
        if secret is None:
            digest, secret, start = _hash(Path(self._root, path), status.st_size)
            is_pointer = 120 <= status.st_size <= 200 and start.startswith(_LFS)
            self.lfs_pointers += [path] * is_pointer
        if secret and not is_allowed:
            self.refuse(path, f"contains {secret}", secrets.remedy(secret))
        else:
            self.files.append(ContextFile(path, _mode(status, start), status.st_size, digest))

    def _add_symlink(self, path: str) -> None:
        link = Path(self._root, path)
        target = os.readlink(link).replace(os.sep, "/")  # noqa: PTH115 - Path would normalise it
        if not _is_utf8(target):
            self.refuse(path, "its target is not UTF-8", "rename it")
        elif Path(target).is_absolute() or not self._is_inside(link):
            self.refuse(
                path,
                f"is a symlink to {target!r}, outside the folder",
                f"replace it by the file itself, or {_EXCLUDE}",
            )
        else:
            digest = hashlib.sha256(os.fsencode(target)).hexdigest()
            self.files.append(ContextFile(path, 0o777, 0, digest, target))

    def _is_inside(self, link: Path) -> bool:
        return Path(os.path.realpath(link)).is_relative_to(self._root)


def _mode(status: os.stat_result, start: bytes = b"") -> int:
    """Return 0o755 for folders and executable files, else 0o644; what all may write stays so.

    Windows knows neither: there a file that starts like a script is executable.
    """
    if sys.platform == "win32":
        return 0o755 if stat.S_ISDIR(status.st_mode) or start.startswith(b"#!") else 0o644
    mode = 0o755 if status.st_mode & stat.S_IXUSR or stat.S_ISDIR(status.st_mode) else 0o644
    return mode | 0o022 if status.st_mode & stat.S_IWOTH else mode


def _hash(file: Path, size: int) -> tuple[str, str | None, bytes]:
    """Return a file's digest, the kind of secret in what is scanned, and its first bytes."""
    with file.open("rb", buffering=0) as opened:
        block = opened.read(min(size + 1, _BLOCK))
        content = hashlib.sha256(block)
        secret = secrets.by_content(block)
        start = block[: len(_LFS)]
        scanned = len(block)
        while following := opened.read(_BLOCK):
            content.update(following)
            if secret is None and scanned < secrets.SCANNED:
                secret = secrets.by_content(block[-secrets.OVERLAP :] + following)
                scanned += len(following)
            block = following
    return content.hexdigest(), secret, start


def _digest_of(files: Iterable[ContextFile]) -> str:
    lines = [f"{file.mode:o} {file.digest} {file.path}\0" for file in files]  # no folder's digest
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unreadable(problem: OSError) -> tuple[str, str]:
    """Return what is wrong with a file that cannot be read, and the remedy."""
    what = f"cannot be read ({os_reason(problem)})"
    if problem.errno in (errno.EACCES, errno.EPERM):
        return what, f"make it readable, or {_EXCLUDE}"
    return what, f"{_EXCLUDE} if the program does not need it"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
