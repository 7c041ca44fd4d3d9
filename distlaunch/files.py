"""Files in a project's folder, where a cloned repository may hold anything, and their locks.

Nothing below the project's own folders is written through a symlink, and what is read as JSON is a
regular file of limited size and depth.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from distlaunch.platforms import NO_FOLLOW, NON_BLOCKING, lock_file, replace, unlock_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAX_BYTES = 64 << 20  # of a file that is read whole
_MAX_DEPTH = 100  # of JSON, far below what Python's recursion takes
_MAX_NAME = 255  # bytes of a file's name


def atomic_write(
    path: Path, content: str | bytes, *, sync: bool = False, is_private: bool = False
) -> None:
    """Write a file, whose folder exists, completely or not at all; OSError is raised.

    `sync` is whether to wait until the content is on the disk, `is_private` whether only its owner
    may read it.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        with os.fdopen(_open(part, flags, 0o600 if is_private else 0o666), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        replace(part, path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def make_folder(path: Path, *, below: Path) -> Path:
    """Create a folder and its parents, and return it; no part below a folder may be a symlink.

    OSError is raised if one is, or the folder cannot be created.
    """
    refuse_symlinks(path, below=below)
    path.mkdir(parents=True, exist_ok=True)
    return path


def refuse_symlinks(path: Path, *, below: Path) -> None:
    """Raise OSError if a part of a path below a folder is a symlink."""
    part = below
    for name in path.relative_to(below).parts:
        part /= name
        if part.is_symlink():
            raise OSError(f"{part} is a symlink")


def is_file_name(name: str) -> bool:
    """Whether a name is one component of a path, so that a file of it stays in its folder."""
    is_plain = name not in ("", ".", "..") and "/" not in name and "\0" not in name
    is_plain = is_plain and Path(name).parts == (name,) and not Path(name).anchor  # on Windows
    return is_plain and len(os.fsencode(name)) <= _MAX_NAME


def open_output(path: Path, mode: Literal["ab", "wb"]) -> IO[bytes]:
    """Open a regular file for output, through no symlink; OSError is raised for any other."""
    return open(path, mode, opener=_open_regular)


def _open(path: Path | str, flags: int, mode: int = 0o666) -> int:
    """Open a file that is no symlink."""
    if not NO_FOLLOW and Path(path).is_symlink():  # on Windows
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return os.open(path, flags | NO_FOLLOW, mode)


def _open_regular(path: str, flags: int) -> int:
    descriptor = _open(path, flags | NON_BLOCKING)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return descriptor


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file of limited size; OSError or ValueError is raised."""
    # A FIFO would block the open call otherwise, /dev/zero would never end.
    with os.fdopen(os.open(path, os.O_RDONLY | NON_BLOCKING), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a regular file")
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"larger than {_MAX_BYTES >> 20} MiB")
    return content


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; OSError or ValueError is raised."""
    return parse_object(read_regular(path))


def parse_object(content: bytes) -> dict[str, Any]:
    """Return the object of JSON that may come from anyone; ValueError is raised."""
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004 - the content is wrong, not the call
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        level = [inner for each in level for inner in _values(each)]
    if level:
        raise ValueError("nested too deeply")
    return value


def _values(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


@contextmanager
def lock(path: Path, *, wait: bool) -> Iterator[int]:
    """Hold an exclusive lock on a file or folder, where the file system has locks (NFS may not).

    The file descriptor is yielded: a process that inherits it holds the lock, too. OSError is
    raised if the file cannot be created; BlockingIOError if another process holds the lock and this
    is not to `wait`.
    """
    if path.is_dir() and sys.platform == "win32":  # which opens no folder
        import hashlib
        import tempfile

        name = hashlib.sha256(os.path.realpath(path).lower().encode()).hexdigest()
        path = Path(tempfile.gettempdir(), f"distlaunch-{name}.lock")
    access = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT | NO_FOLLOW
    descriptor = os.open(path, access, 0o666)
    try:
        try:
            lock_file(descriptor, wait=wait)
        except BlockingIOError:
            raise
        except OSError:
            pass  # such as ENOLCK: run without a lock
        yield descriptor
    finally:
        with suppress(OSError):
            unlock_file(descriptor)
        os.close(descriptor)


def may_be_locked(path: Path) -> bool:
    """Whether a process holds the lock on a file, or may where the file system has no locks."""
    try:
        descriptor = _open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        lock_file(descriptor, wait=False)
        unlock_file(descriptor)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def display_path(path: Path) -> str:
    """Return a path relative to the current directory if it is below it."""
    current, full = Path.cwd(), Path(os.path.abspath(path))  # noqa: PTH100 - symlinks stay
    return str(full.relative_to(current) if full.is_relative_to(current) else path)
