"""The files that go into an image: what they are, and a digest that changes only with them."""

from __future__ import annotations

import errno
import hashlib
import heapq
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from distlaunch.errors import ContextError, DistlaunchError
from distlaunch.image.context import secrets
from distlaunch.image.context.ignore import NOTHING, IgnoreRules
from distlaunch.image.context.known import Known, stamp

if TYPE_CHECKING:
    from collections.abc import Iterable

LARGE = 50_000_000  # bytes of a context from which its size is worth a word
_LARGEST = 5  # files that are then named
_BLOCK = 1 << 20  # bytes that are read and scanned at once
_LARGE_FILE = 1 << 18  # bytes from which a thread helps
_MOST_THREADS = 8
_SPECIAL = {
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_LEAVE_OUT = "leave it out in .dockerignore"


class ContextFile(NamedTuple):
    """A file of the context, or a symbolic link that stays in it.

    Parameters
    ----------
    path
        Posix, relative to the context's folder.
    mode
        0o755 where its owner may execute it, else 0o644; 0o777 of a link.
    size
        Bytes of its content, 0 of a link.
    digest
        SHA-256 of its content (of a link: of where it leads), in hexadecimal digits.
    target
        Where a link leads, as it stands in the link; None for a file.
    """

    path: str
    mode: int
    size: int
    digest: str
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """The files of a folder that go into an image, by path.

    Parameters
    ----------
    folder
        Where they lie.
    files
        In the order of their paths' bytes. Folders are not among them.
    digest
        SHA-256 over path, mode and content of all, in hexadecimal digits. Times, owners and the
        folder's own path are not in it.
    size
        Bytes of all files together.
    """

    folder: Path
    files: tuple[ContextFile, ...]
    digest: str
    size: int

    def report(self) -> str | None:
        """Say how large the context is and what makes it so; None where it is not large."""
        if self.size < LARGE:
            return None
        largest = heapq.nlargest(_LARGEST, self.files, key=attrgetter("size"))
        named = ", ".join(f"{file.path} ({_megabytes(file.size)})" for file in largest)
        return (
            f"{_megabytes(self.size)} in {len(self.files):,} files go into the image; the largest: "
            f"{named}; what the program doesn't need there can be left out in .dockerignore"
        )


def read_context(folder: Path, ignore: str, *, cache: Path | None = None) -> Context:
    """Read the files of a folder that an ignore file leaves in.

    Parameters
    ----------
    folder
        The project's folder.
    ignore
        The content of the ignore file, in Docker's rules. Neither it nor a Dockerfile is left out
        by itself. A comment ``# distlaunch: allow-secret PATH`` lets a file in whatever it holds.
    cache
        A folder for what was hashed before, ``.distlaunch/cache`` of the project as a rule. What
        is in it never changes the result.

    Raises
    ------
    ContextError
        With a line for each file that cannot or must not go into an image: unreadable ones,
        sockets and devices, links that lead out, keys and other secrets.
    ImageError
        If the ignore file holds a pattern that cannot be read.
    """
    known = Known(cache)
    reading = _Reading(folder, known, secrets.allowed(ignore))
    _walk(reading, IgnoreRules(ignore))
    reading.read_pending()
    known.keep()
    if reading.problems:
        raise ContextError(line for _, line in sorted(reading.problems))
    files = tuple(sorted(reading.files, key=attrgetter("path")))
    return Context(folder, files, _digest_of(files), sum(map(attrgetter("size"), files)))


def paths(folder: Path, ignore: str) -> list[str]:
    """Return the paths of the files that an ignore file leaves in, whether or not they can be read.

    Raises
    ------
    ImageError
        If the ignore file holds a pattern that cannot be read.
    """
    listing = _Listing(folder)
    _walk(listing, IgnoreRules(ignore))
    return listing.paths


class _Taker(Protocol):
    """What a walk hands files to."""

    folder: Path

    def take(self, path: str, entry: os.DirEntry[str]) -> None: ...

    def refuse(self, path: str, what: str) -> None: ...


class _Listing:
    """The paths alone of what is found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths: list[str] = []

    def take(self, path: str, entry: os.DirEntry[str]) -> None:  # noqa: ARG002
        self.paths.append(path)

    def refuse(self, path: str, what: str) -> None:
        """Leave out what cannot be entered."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """A file that is to be read."""

    path: str
    seen: os.stat_result


class _Reading:
    """What is found of a folder's files while they are read."""

    def __init__(self, folder: Path, known: Known, allowed: frozenset[str]) -> None:
        self.folder = folder
        self.files: list[ContextFile] = []
        self.problems: list[tuple[str, str]] = []
        self._known = known
        self._allowed = allowed
        self._root = os.path.realpath(folder)
        self._pending: list[_Pending] = []

    def refuse(self, path: str, what: str) -> None:
        """Note why a file can't go into the image."""
        shown = path.encode("utf-8", "backslashreplace").decode()
        shown = shown if shown.isprintable() else repr(shown)
        self.problems.append((path, f"{shown}: {what}"))

    def take(self, path: str, entry: os.DirEntry[str]) -> None:
        """Take a file that is known, or note it as one to be read."""
        try:
            seen = entry.stat(follow_symlinks=False)
        except OSError as problem:
            self.refuse(path, _said(problem))
            return
        if stat.S_ISREG(seen.st_mode):
            if digest := self._known.digest(path, seen):
                self.files.append(_file(path, seen, digest))
            else:
                self._pending.append(_Pending(path, seen))
        elif stat.S_ISLNK(seen.st_mode):
            self._take_link(path)
        else:
            kind = _SPECIAL.get(stat.S_IFMT(seen.st_mode), "no file")
            self.refuse(path, f"is {kind}, which no image can hold; {_LEAVE_OUT}")

    def read_pending(self) -> None:
        """Read what is not known, large files on threads of their own.

        To read a small one is mostly Python's work, which threads only make slower.
        """
        pending = [each for each in self._pending if self._may_be_read(each.path)]
        large = [each for each in pending if each.seen.st_size >= _LARGE_FILE]
        with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
            done = pool.map(self._read, large)
            for each in pending:
                if each.seen.st_size < _LARGE_FILE:
                    self._read(each)
            list(done)

    def _may_be_read(self, path: str) -> bool:
        if not _is_utf8(path):
            self.refuse(path, "its name is not UTF-8; rename it")
        elif path not in self._allowed and (what := secrets.by_name(path)):
            self.refuse(path, f"holds {what}; {secrets.remedy(what)}")
        else:
            return True
        return False

    def _read(self, pending: _Pending) -> None:
        path = pending.path
        try:
            digest, what, after = self._content(path, pending.seen.st_size)
        except OSError as problem:
            self.refuse(path, _said(problem))
            return
        if stamp(after) != stamp(pending.seen):
            self.refuse(path, "changed while it was read; run again when nothing writes to it")
        elif what and path not in self._allowed:
            self.refuse(path, f"holds {what}; {secrets.remedy(what)}")
        else:
            if not what:
                self._known.learn(path, after, digest)
            self.files.append(_file(path, after, digest))

    def _content(self, path: str, size: int) -> tuple[str, str | None, os.stat_result]:
        """Return a file's digest, the secret that is in it, and how it looks after the reading."""
        # A named pipe may have come in the file's place: nothing is waited for.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(f"{self._root}/{path}", flags)
        try:
            return *_hash(path, descriptor, size), os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def _take_link(self, path: str) -> None:
        link = Path(self._root, path)
        try:
            target = os.readlink(link)  # noqa: PTH115 - Path would write it anew
        except OSError as problem:
            self.refuse(path, _said(problem))
            return
        if not _is_utf8(path) or not _is_utf8(target):
            self.refuse(path, "its name, or where it leads, is not UTF-8; rename it")
        elif Path(target).is_absolute() or not self._is_inside(link):
            self.refuse(
                path,
                f"is a link to {target!r}, out of the folder; put the file itself there, "
                f"or {_LEAVE_OUT}",
            )
        else:
            digest = hashlib.sha256(os.fsencode(target)).hexdigest()
            self.files.append(ContextFile(path, 0o777, 0, digest, target))

    def _is_inside(self, link: Path) -> bool:
        real = os.path.realpath(link)
        return real == self._root or real.startswith(f"{self._root}{os.sep}")


def _walk(reading: _Taker, rules: IgnoreRules) -> None:
    """Take what is no folder and not left out; folders that are left out are not entered."""
    folders = [("", NOTHING)]
    while folders:
        above, match_above = folders.pop()
        try:
            entries = list(os.scandir(reading.folder / above))
        except OSError as problem:
            if not above:
                raise DistlaunchError(f"{reading.folder}: {_said(problem)}") from None
            reading.refuse(above.removesuffix("/"), _said(problem))
            continue
        for entry in entries:
            path = above + entry.name
            match = rules.last_match(path, entry.name, match_above)
            left_out = rules.leaves_out(match)
            if entry.is_dir(follow_symlinks=False):
                if not left_out or rules.lets_in_below(path, match):
                    folders.append((f"{path}/", match))
            elif not left_out:
                reading.take(path, entry)


def _hash(path: str, descriptor: int, size: int) -> tuple[str, str | None]:
    """Return the digest of a file, and what secret is in the part of it that is scanned."""
    block = os.read(descriptor, min(size + 1, _BLOCK))
    content = hashlib.sha256(block)
    what = secrets.by_content(path, block)
    if len(block) == size < _BLOCK:
        return content.hexdigest(), what
    scanned = len(block)
    while after := os.read(descriptor, _BLOCK):
        content.update(after)
        if what is None and scanned < secrets.SCANNED:
            what = secrets.by_content(path, block[-secrets.OVERLAP :] + after)
            scanned += len(after)
        block = after
    return content.hexdigest(), what


def _file(path: str, seen: os.stat_result, digest: str) -> ContextFile:
    mode = 0o755 if seen.st_mode & stat.S_IXUSR else 0o644
    return ContextFile(path, mode, seen.st_size, digest)


def _digest_of(files: Iterable[ContextFile]) -> str:
    r"""Return the digest of all: no path holds the ``\0`` that ends it here."""
    lines = [f"{file.mode:o} {file.digest} {file.path}\0" for file in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _said(problem: OSError) -> str:
    why = (problem.strerror or str(problem)).lower()
    if problem.errno in (errno.EACCES, errno.EPERM):
        return f"cannot be read ({why}); make it readable, or {_LEAVE_OUT}"
    return f"cannot be read ({why}); {_LEAVE_OUT} if the program doesn't need it"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
