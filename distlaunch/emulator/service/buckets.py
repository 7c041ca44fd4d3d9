"""Buckets on a folder: a folder a bucket, a file an object, so that jobs can have them as /gcs.

What Cloud Storage keeps beside the content is made from the file (its time is the generation) or
kept in memory, so that files that a job wrote are objects like any others.
"""

from __future__ import annotations

import base64
import errno
import os
import re
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from distlaunch.emulator.service.answers import Answer, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from distlaunch.emulator.service.answers import Request

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", re.ASCII)
_LONGEST_NAME = 1_024  # bytes
_MICRO = 1_000
_PIECE = 1 << 20
_UPLOADS = ".uploads"


class StorageRefused(Refused):
    """A refusal in the form of the storage's JSON API.

    Parameters
    ----------
    code
        The HTTP status.
    reason
        The API's word for it, as ``notFound``.
    message
        What is wrong.
    """

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(code, message)
        self.reason = reason

    @property
    def answer(self) -> Answer:
        each = {"message": self.message, "domain": "global", "reason": self.reason}
        error = {"code": self.code, "message": self.message, "errors": [each]}
        return Answer({"error": error}, self.code)


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is said of an object beside its content.

    Parameters
    ----------
    said
        By the JSON API's names, as ``contentType``.
    generation
        Of the object that it is said of.
    updated
        Microseconds since 1970.
    """

    said: Mapping[str, object] = field(default_factory=dict)
    metageneration: int = 1
    generation: int = 0
    updated: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as it is now.

    Parameters
    ----------
    generation
        Microseconds since 1970; each content has its own.
    """

    bucket: str
    name: str
    path: Path
    size: int
    generation: int
    attributes: Attributes

    @property
    def content_type(self) -> str:
        said = self.attributes.said.get("contentType")
        return str(said or guess_type(self.name)[0] or "application/octet-stream")


@dataclass(frozen=True, slots=True)
class Hashes:
    """What an object's content is checked by, in base64."""

    crc32c: str
    md5: str


class Buckets:
    """The buckets in a folder; every method may be called from any thread.

    A bucket is there as soon as it is named, as there is nobody here to make one.

    Parameters
    ----------
    folder
        What holds the buckets.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._lock = threading.RLock()
        self._attributes: dict[tuple[str, str], Attributes] = {}
        self._hashes: dict[Path, tuple[int, int, Hashes]] = {}
        self._made: set[Path] = set()
        self._newest = 0
        uploads = self.folder / _UPLOADS
        shutil.rmtree(uploads, ignore_errors=True)
        uploads.mkdir(parents=True)
        self._uploads = uploads

    def names(self) -> list[str]:
        """Return the names of the buckets that hold something, or have been made."""
        found = [each.name for each in self.folder.iterdir() if each.is_dir()]
        return sorted(name for name in found if _BUCKET.fullmatch(name))

    def make(self, bucket: str) -> bool:
        """Make a bucket; whether it was not there before."""
        path = self.path(bucket)
        with self._lock:
            is_new = not path.exists()
            path.mkdir(exist_ok=True)
        return is_new

    def remove(self, bucket: str) -> None:
        """Remove a bucket.

        Raises
        ------
        StorageRefused
            If it is not empty.
        """
        with self._lock:
            if next(self.walk(bucket, ""), None) is not None:
                text = "The bucket you tried to delete is not empty."
                raise StorageRefused(409, "conflict", text)
            shutil.rmtree(self.path(bucket), ignore_errors=True)

    def path(self, bucket: str, name: str = "") -> Path:
        """Return where an object lies, or a bucket.

        Raises
        ------
        StorageRefused
            If there can be none of this name.
        """
        if not _BUCKET.fullmatch(bucket):
            raise StorageRefused(400, "invalid", f"Invalid bucket name: '{bucket}'")
        if len(name.encode(errors="surrogatepass")) > _LONGEST_NAME or set(name) & set("\0\r\n"):
            raise StorageRefused(400, "invalid", "Disallowed unicode characters or too long a name")
        root = self.folder / bucket
        if not name:
            return root
        parts = name.removesuffix("/").split("/")
        path = root.joinpath(*map(_as_file_name, parts))
        # A job may have put links into its bucket; none leads out of it.
        if not path.parent.resolve().is_relative_to(root):
            raise _not_found(bucket, name)
        return path

    def find(self, bucket: str, name: str) -> Stored | None:
        """Return an object, None where there is none."""
        path = self.path(bucket, name)
        try:
            stat = path.lstat()
        except (OSError, ValueError):
            return None
        is_folder = name.endswith("/")
        if is_folder:
            if not path.is_dir() or not self._is_marker(bucket, name, path):
                return None
        elif not path.is_file() or path.is_symlink():
            return None
        generation = stat.st_mtime_ns // _MICRO
        said = self._attributes.get((bucket, name))
        if said is not None and is_folder:
            generation = said.generation
        if said is None or said.generation != generation:
            said = Attributes(generation=generation, updated=generation)
        size = 0 if is_folder else stat.st_size
        return Stored(bucket, name, path, size, generation, said)

    def need(self, bucket: str, name: str) -> Stored:
        """Return an object.

        Raises
        ------
        StorageRefused
            If there is none.
        """
        found = self.find(bucket, name)
        if found is None:
            raise _not_found(bucket, name)
        return found

    def walk(self, bucket: str, prefix: str) -> Iterator[str]:
        """Give the names of the objects that begin with a prefix, in no order."""
        root = self.path(bucket)
        head = prefix.rpartition("/")[0]
        top = self.path(bucket, f"{head}/-").parent if head else root
        for at, folders, files in os.walk(top):
            here = "".join(f"{_as_name(part)}/" for part in _parts(at, root))
            names = [here + _as_name(file) for file in files if _is_object(at, file)]
            is_marker = here and self._is_marker(bucket, here, root.joinpath(*_parts(at, root)))
            for name in [*names, *([here] if is_marker else [])]:
                if name.startswith(prefix):
                    yield name
            folders[:] = [folder for folder in folders if _is_object(at, folder)]

    def hashes(self, stored: Stored) -> Hashes:
        """Return the hashes of an object's content; they are kept until it changes."""
        with self._lock:
            known = self._hashes.get(stored.path)
        if known is not None and known[:2] == (stored.generation, stored.size):
            return known[2]
        made = hashes_of(None if stored.name.endswith("/") else stored.path)
        with self._lock:
            self._hashes[stored.path] = stored.generation, stored.size, made
        return made

    def upload(self) -> tuple[BinaryIO, Path]:
        """Return a new file for what comes in, to be put into a bucket later."""
        descriptor, name = tempfile.mkstemp(dir=self._uploads)
        return os.fdopen(descriptor, "w+b"), self._uploads / os.path.basename(name)  # noqa: PTH119

    def put(
        self,
        bucket: str,
        name: str,
        content: Path,
        *,
        hashes: Hashes,
        said: Mapping[str, object],
        check: Callable[[Stored | None], None] = lambda _: None,
    ) -> Stored:
        """Make a file that `upload` gave the content of an object.

        Parameters
        ----------
        hashes
            Those of the content.
        said
            What is said of the object beside its content.
        check
            Gets the object as it was; raises if it must not be written over.

        Raises
        ------
        StorageRefused
            If there can be no such object in a folder.
        """
        path = self.path(bucket, name)
        with self._lock:
            try:
                check(self.find(bucket, name))
                self._make_room(path if name.endswith("/") else path.parent, bucket)
                generation = self._next_generation()
                if not name.endswith("/"):
                    self._clear(path, bucket, name)
                    content.chmod(0o644)
                    os.utime(content, ns=(generation * _MICRO, generation * _MICRO))
                    content.replace(path)
            except OSError as problem:
                raise _cannot_be_a_file(bucket, name, problem) from None
            finally:
                with suppress(OSError):
                    content.unlink(missing_ok=True)
            attributes = Attributes(dict(said), generation=generation, updated=generation)
            self._attributes[bucket, name] = attributes
            stored = self.need(bucket, name)
            self._hashes[path] = stored.generation, stored.size, hashes
            return stored

    def describe(
        self, stored: Stored, said: Mapping[str, object], check: Callable[[Stored], None]
    ) -> Stored:
        """Change what is said of an object; None takes a thing away."""
        with self._lock:
            now = self.need(stored.bucket, stored.name)
            check(now)
            merged = {**now.attributes.said, **said}
            attributes = replace(
                now.attributes,
                said={key: value for key, value in merged.items() if value is not None},
                metageneration=now.attributes.metageneration + 1,
                updated=self._next_generation(),
            )
            self._attributes[now.bucket, now.name] = attributes
            return replace(now, attributes=attributes)

    def delete(self, bucket: str, name: str, check: Callable[[Stored], None]) -> None:
        """Delete an object, and the folders that are there for it alone.

        Raises
        ------
        StorageRefused
            If there is none.
        """
        with self._lock:
            stored = self.need(bucket, name)
            check(stored)
            self._attributes.pop((bucket, name), None)
            self._hashes.pop(stored.path, None)
            if name.endswith("/"):
                self._made.add(stored.path)
                self._prune(stored.path, bucket)
            else:
                stored.path.unlink(missing_ok=True)
                self._prune(stored.path.parent, bucket)

    def _is_marker(self, bucket: str, name: str, path: Path) -> bool:
        """Whether a folder is an object: made as one, or by a job and empty."""
        if (bucket, name) in self._attributes:
            return True
        return path not in self._made and next(path.iterdir(), None) is None

    def _make_room(self, folder: Path, bucket: str) -> None:
        root = self.path(bucket)
        missing = []
        while folder != root and not folder.exists():
            missing.append(folder)
            folder = folder.parent
        root.mkdir(exist_ok=True)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            self._made.add(each)

    def _clear(self, path: Path, bucket: str, name: str) -> None:
        """Remove an empty folder from where a file is to be, unless the folder is an object."""
        if not path.is_dir():
            return
        if self._is_marker(bucket, f"{name}/", path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        path.rmdir()

    def _prune(self, folder: Path, bucket: str) -> None:
        root = self.path(bucket)
        while folder != root and folder in self._made:
            name = "".join(f"{_as_name(part)}/" for part in folder.relative_to(root).parts)
            if (bucket, name) in self._attributes:
                return
            try:
                folder.rmdir()
            except OSError:  # something else lies there
                return
            self._made.discard(folder)
            folder = folder.parent

    def _next_generation(self) -> int:
        self._newest = max(self._newest + 1, time.time_ns() // _MICRO)
        return self._newest


def _as_file_name(part: str) -> str:
    """Return what a part of an object's name is called in the folder, which takes not all names."""
    return f"%{part}" if part in ("", ".", "..") or part.startswith("%") else part


def _as_name(file_name: str) -> str:
    return file_name.removeprefix("%")


def _parts(at: str, root: Path) -> tuple[str, ...]:
    return Path(at).relative_to(root).parts


def _is_object(folder: str, name: str) -> bool:
    """Whether a file or folder can be an object: it is no link, and the storage has such names."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    is_link = os.path.islink(os.path.join(folder, name))  # noqa: PTH114, PTH118 - there may be many
    return not is_link and _as_file_name(_as_name(name)) == name


def _not_found(bucket: str, name: str) -> StorageRefused:
    return StorageRefused(404, "notFound", f"No such object: {bucket}/{name}")


def no_storage_method(request: Request) -> StorageRefused:
    """Return the refusal of a request that leads nowhere."""
    return StorageRefused(404, "notFound", f"Not Found: {request.method} {request.path}")


def _cannot_be_a_file(bucket: str, name: str, problem: OSError) -> StorageRefused:
    why = (problem.strerror or str(problem)).lower()
    text = f"{bucket}/{name} cannot be kept, as objects are files and folders here ({why})"
    return StorageRefused(400, "invalid", text)


def hashes_of(path: Path | None) -> Hashes:
    """Return the hashes of a file's content, or of none."""
    import hashlib

    import google_crc32c

    md5 = hashlib.md5(usedforsecurity=False)
    crc: Any = google_crc32c.Checksum()  # type: ignore[no-untyped-call]
    if path is not None:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                md5.update(piece)
                crc.update(piece)
    return Hashes(base64.b64encode(crc.digest()).decode(), base64.b64encode(md5.digest()).decode())
