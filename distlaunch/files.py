"""Atomic writes and file locks."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def atomic_write(path: Path, content: str | bytes, *, sync: bool = False) -> None:
    """Write a file, whose folder exists, completely or not at all; OSError is raised.

    `sync` is whether to wait until the content is on the disk.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


@contextmanager
def lock(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold an exclusive lock on a file, where the file system has locks (NFS may not).

    OSError is raised if the file cannot be created; BlockingIOError if another process holds the
    lock and this is not to `wait`.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:
            pass  # such as ENOLCK: run without a lock
        yield
    finally:
        os.close(descriptor)
