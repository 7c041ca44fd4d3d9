"""Files of a job folder: a local path, ``/gcs/BUCKET/...`` and ``gs://...`` alike.

Neither a bucket nor its mount can rename a folder, or write half a file and be caught at it; so
everything is written on this machine first and published file by file, the one that makes the rest
visible last.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from .errors import StorageError


def is_remote(path: str) -> bool:
    """Return whether ``path`` is a URL such as ``gs://bucket/folder``."""
    return "://" in path


def _is_bucket(path: str) -> bool:
    return is_remote(path) or path.startswith("/gcs/")


def join(folder: str, *names: str) -> str:
    """Return the path of a file in ``folder``."""
    return "/".join((folder.rstrip("/"), *names))


@contextlib.contextmanager
def explained(what: str, path: str) -> Iterator[None]:
    """Turn an error of the file system into one line: what could not be done, and where."""
    try:
        yield
    except tf.errors.OpError as error:
        raise StorageError(f"{what} {path}: {error.message.splitlines()[0]}") from error
    except OSError as error:
        raise StorageError(f"{what} {path}: {error.strerror or error}") from error


def make_folder(path: str) -> None:
    """Make a folder, and prove that it can be written.

    Raises
    ------
    StorageError
        If it cannot.
    """
    with explained("cannot write the folder", path):
        if is_remote(path):
            tf.io.gfile.makedirs(path)
        else:
            Path(path).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass


def write_whole(path: str, data: bytes) -> None:
    """Write a file so that nobody ever sees half of it.

    Raises
    ------
    StorageError
        If it cannot be written.
    """
    with explained("cannot write", path):
        if is_remote(path):
            with tf.io.gfile.GFile(path, "wb") as file:
                file.write(data)
            return
        partial = Path(f"{path}.{os.getpid()}.partial")
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except OSError:
            _discard(partial)
            raise


def _discard(partial: Path) -> None:
    # Not even its folder may be one: the error to tell is the one before.
    with contextlib.suppress(OSError):
        partial.unlink()


def read_whole(path: str) -> bytes:
    """Return a file's bytes.

    Raises
    ------
    StorageError
        If it cannot be read.
    """
    with explained("cannot read", path), tf.io.gfile.GFile(path, "rb") as file:
        return file.read()


def publish(folder: Path, destination: str, last: str) -> None:
    """Move the files of a local ``folder`` to ``destination``, the file named ``last`` last.

    Raises
    ------
    StorageError
        If a file cannot be written; what was visible before stays so.
    """
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    with explained("cannot write", destination):
        for name in sorted(names, key=lambda n: n == last):
            target = join(destination, name)
            tf.io.gfile.makedirs(target.rpartition("/")[0])
            if is_remote(destination):
                tf.io.gfile.copy(str(folder / name), target, overwrite=True)
            else:
                _move(folder / name, target)


def _move(source: Path, target: str) -> None:
    """Move a file across file systems too, without ever showing half of it."""
    try:
        source.replace(target)
    except OSError:
        partial = Path(f"{target}.{os.getpid()}.partial")
        try:
            shutil.copyfile(source, partial)
            partial.replace(target)
        except OSError:
            _discard(partial)
            raise


@contextlib.contextmanager
def scratch_folder(near: str) -> Iterator[Path]:
    """Give a folder to write in, on ``near``'s file system unless that is a bucket."""
    with explained("cannot write", near):
        place = None if _is_bucket(near) else near
        folder = tempfile.mkdtemp(prefix=".partial-", dir=place)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def names_in(folder: str) -> list[str]:
    """Return the names in a folder; none where there is no folder."""
    try:
        return sorted(name.rstrip("/") for name in tf.io.gfile.listdir(folder))
    except tf.errors.NotFoundError:
        return []


def remove(path: str) -> None:
    """Remove a file or a folder with all that is in it; one that is gone already is fine."""
    with explained("cannot remove", path):
        try:
            if tf.io.gfile.isdir(path):
                tf.io.gfile.rmtree(path)
            else:
                tf.io.gfile.remove(path)
        except tf.errors.NotFoundError:
            return
