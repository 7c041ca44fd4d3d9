"""Files of a job folder: a local path, ``/gcs/BUCKET/...`` and ``gs://...`` alike.

Neither a bucket nor its mount can rename a folder, so what belongs together is written file by
file, the one that makes the rest visible last. In a bucket a file is seen when it is closed, a
folder is the names of its files, and a call is a request or several: none is made that need not be.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import tensorflow as tf

from .errors import StorageError

_CHUNK = 1 << 20
_NEAR = ".partial"


def is_remote(path: str) -> bool:
    """Return whether ``path`` is a URL such as ``gs://bucket/folder``."""
    return "://" in path


def _is_bucket(path: str) -> bool:
    return is_remote(path) or path.startswith("/gcs/")


def join(folder: str, *names: str) -> str:
    """Return the path of a file in ``folder``."""
    return "/".join((folder.rstrip("/"), *names))


@contextlib.contextmanager
def explained(failure: str, path: str) -> Iterator[None]:
    """Turn an error of the file system into one line: what could not be done, and where."""
    try:
        yield
    except tf.errors.OpError as error:
        raise StorageError(f"{failure} {path}: {error.message.splitlines()[0]}") from error
    except OSError as error:
        raise StorageError(f"{failure} {path}: {error.strerror or error}") from error


def make_folder(path: str) -> None:
    """Make a folder, and prove that it can be written.

    Raises
    ------
    StorageError
        If it cannot.
    """
    with explained("cannot write the folder", path):
        if is_remote(path):
            # An empty folder's object: all that ``makedirs`` writes, after many requests.
            with new_file(join(path, "")) as file:
                file.write(b"")
        else:
            Path(path).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass


def make_new_folder(path: str) -> None:
    """Make a folder that is not there yet; in a bucket nothing has to be made.

    Raises
    ------
    StorageError
        If it cannot be made, or is there.
    """
    if not is_remote(path):
        with explained("cannot write", path):
            Path(path).mkdir(parents=True)


def write_whole(path: str, data: bytes) -> None:
    """Write a file so that no reader ever sees half of it.

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
            partial.write_bytes(data)
            partial.replace(path)
        except OSError:
            _discard(partial)
            raise


def _discard(partial: Path) -> None:
    # Not even its folder may be one: the error to report is the one before.
    with contextlib.suppress(OSError):
        partial.unlink()


def read_whole(path: str) -> bytes:
    """Return a file's bytes.

    Raises
    ------
    StorageError
        If it cannot be read.
    """
    with explained("cannot read", path):
        return _read(path)


def read_if_there(path: str) -> bytes | None:
    """Return a file's bytes, or None where there is no such file.

    Raises
    ------
    StorageError
        If it cannot be read.
    """
    with explained("cannot read", path):
        try:
            return _read(path)
        except tf.errors.NotFoundError:
            return None


def _read(path: str) -> bytes:
    # In pieces until there is no more: a request for its size first would be one more.
    with tf.io.gfile.GFile(path, "rb") as file:
        return b"".join(iter(lambda: file.read(_CHUNK), b""))


@contextlib.contextmanager
def new_file(path: str) -> Iterator[BinaryIO]:
    """Give a file to write in one go."""
    _make_folder_of(path)
    with tf.io.gfile.GFile(path, "wb") if is_remote(path) else Path(path).open("wb") as file:
        yield file


def _make_folder_of(path: str) -> None:
    if not is_remote(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)


def publish(folder: Path, destination: str, last: str, obsolete: Collection[str] = ()) -> None:
    """Move the files of a local ``folder`` to ``destination``, the file named ``last`` last.

    What was published there before stays until all of the new files are beside it. Then its own
    ``last`` goes first, and the files named ``obsolete``, so that no reader takes the old and the
    new for one.

    Raises
    ------
    StorageError
        If a file cannot be written.
    """
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    names.sort(key=lambda name: name == last)
    there = names_in(destination)
    with explained("cannot write", destination):
        replaced = {last, *obsolete} & set(there)
        if is_remote(destination) and not replaced and _NEAR not in there:
            _copy(folder, destination, names)
            return
        _make_folder_of(join(destination, last))
        with _brought_near(folder, destination, names) as near:
            for name in replaced:
                tf.io.gfile.remove(join(destination, name))
            for name in names:
                _rename(join(near, name), join(destination, name))


@contextlib.contextmanager
def _brought_near(folder: Path, destination: str, names: list[str]) -> Iterator[str]:
    """Give a folder with the same files from where each can be renamed into ``destination``."""
    if not is_remote(destination) and folder.stat().st_dev == Path(destination).stat().st_dev:
        yield str(folder)
        return
    near = join(destination, _NEAR)
    try:
        _copy(folder, near, names)
        yield near
    finally:
        with contextlib.suppress(StorageError):
            remove(near)


def _copy(folder: Path, destination: str, names: list[str]) -> None:
    for name in names:
        with (folder / name).open("rb") as file, new_file(join(destination, name)) as copy:
            shutil.copyfileobj(file, copy, _CHUNK)


def _rename(source: str, target: str) -> None:
    _make_folder_of(target)
    tf.io.gfile.rename(source, target, overwrite=True)


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
    """Return the names in a folder; none where there is no folder.

    Raises
    ------
    StorageError
        If it cannot be listed.
    """
    with explained("cannot list", folder):
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


def remove_files(folder: str, *names: str) -> None:
    """Remove a folder of these files, in this order; what is gone already is fine."""
    with explained("cannot remove", folder):
        for name in names:
            with contextlib.suppress(tf.errors.NotFoundError):
                tf.io.gfile.remove(join(folder, name))
    if not is_remote(folder):
        remove(folder)
