"""Files of a job folder: a local path, ``/gcs/BUCKET/...`` and ``gs://...`` alike.

Neither a bucket nor its mount can rename a folder, so the files of a model are written one by one,
and the file that readers look for is the last. In a bucket a file is visible when it is closed, and
a folder is a prefix of names. Each call is one or more requests, so there are as few as possible.

What fails is raised as StorageError, in one line with the path.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import tensorflow as tf

from distlaunch_trainer.errors import StorageError, summarize

# Of TensorFlow's file system, with which it reports a refusal or a failed connection.
_NO_ACCESS = re.compile(r"(?i)libcurl|bearer token|http response code 40[13]|permission_?denied")
_CHUNK = 1 << 20
_STAGING = ".partial"


def is_remote(path: str) -> bool:
    """Return whether ``path`` is a URL such as ``gs://bucket/folder``."""
    return "://" in path


def is_bucket(path: str) -> bool:
    """Return whether ``path`` is in a bucket, as a URL or mounted."""
    return is_remote(path) or path.startswith("/gcs/")


def join(folder: str, *names: str) -> str:
    """Return the path of a file in ``folder``."""
    return "/".join((folder.rstrip("/"), *names))


@contextlib.contextmanager
def explained(failure: str, path: str) -> Iterator[None]:
    """Raise errors of the file system as one line with the failure and the path."""
    try:
        yield
    except tf.errors.OpError as error:
        remedy = _remedy(path, error.message)
        raise StorageError(f"{failure} {path}: {summarize(error)}{remedy}") from error
    except OSError as error:
        raise StorageError(f"{failure} {path}: {error.strerror or error}") from error


def _remedy(path: str, reason: str) -> str:
    """Return how to get access to a bucket, which TensorFlow requests as anyone by default."""
    if not path.startswith("gs://") or not _NO_ACCESS.search(reason):
        return ""
    return (
        "; on your own machine log in with 'gcloud auth application-default login', and see that "
        "the network reaches storage.googleapis.com; in a job grant its service account access to "
        "the bucket"
    )


def make_folder(path: str) -> None:
    """Create a folder, and check that it can be written."""
    with explained("cannot write the folder", path):
        if is_remote(path):
            # The object of an empty folder, for which ``makedirs`` makes many requests.
            with new_file(join(path, "")) as file:
                file.write(b"")
        else:
            Path(path).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass


def make_new_folder(path: str) -> None:
    """Create a folder, which must not exist; in a bucket nothing is to be done."""
    if not is_remote(path):
        with explained("cannot write", path):
            Path(path).mkdir(parents=True)


def write_whole(path: str, data: bytes) -> None:
    """Write a file that becomes visible when it is complete."""
    with explained("cannot write", path):
        if is_remote(path):
            # An object of a bucket becomes visible when it is complete.
            with tf.io.gfile.GFile(path, "wb") as file:
                file.write(data)
            return
        partial = Path(f"{path}.{os.getpid()}.partial")
        try:
            partial.write_bytes(data)
            partial.replace(path)
        except OSError:
            # This may fail too, e.g. where the folder is a file; the first error is reported.
            with contextlib.suppress(OSError):
                partial.unlink()
            raise


def read_whole(path: str) -> bytes:
    """Return a file's bytes."""
    with explained("cannot read", path):
        return _read(path)


def read_if_there(path: str) -> bytes | None:
    """Return a file's bytes, or None if there is no such file."""
    with explained("cannot read", path):
        try:
            return _read(path)
        except tf.errors.NotFoundError:
            return None


def _read(path: str) -> bytes:
    # In pieces until the end: to read its size first would be one more request.
    with tf.io.gfile.GFile(path, "rb") as file:
        return b"".join(iter(lambda: file.read(_CHUNK), b""))


@contextlib.contextmanager
def new_file(path: str) -> Iterator[BinaryIO]:
    """Open a file to write from its beginning to its end; OSErrors are left to the caller."""
    _make_folder_of(path)
    with tf.io.gfile.GFile(path, "wb") if is_remote(path) else Path(path).open("wb") as file:
        yield file


def _make_folder_of(path: str) -> None:
    if not is_remote(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)


def publish(folder: Path, destination: str, last: str, obsolete: Collection[str] = ()) -> None:
    """Move the files of a local ``folder`` to ``destination``, the file named ``last`` last.

    The files that were published before are kept until all new files are beside them. Then the old
    ``last`` and the files named ``obsolete`` are removed first, so that no reader sees a mixture.
    """
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    names.sort(key=lambda name: name == last)
    existing = names_in(destination)
    with explained("cannot write", destination):
        replaced = {last, *obsolete} & set(existing)
        if is_remote(destination) and not replaced and _STAGING not in existing:
            _copy(folder, destination, names)
            return
        _make_folder_of(join(destination, last))
        with _staged(folder, destination, names) as staging:
            for name in replaced:
                tf.io.gfile.remove(join(destination, name))
            for name in names:
                _rename(join(staging, name), join(destination, name))


@contextlib.contextmanager
def _staged(folder: Path, destination: str, names: list[str]) -> Iterator[str]:
    """Yield a folder with the same files, on the file system of ``destination``."""
    if not is_remote(destination) and folder.stat().st_dev == Path(destination).stat().st_dev:
        yield str(folder)
        return
    staging = join(destination, _STAGING)
    try:
        _copy(folder, staging, names)
        yield staging
    finally:
        with contextlib.suppress(StorageError):
            remove(staging)


def _copy(folder: Path, destination: str, names: list[str]) -> None:
    for name in names:
        with (folder / name).open("rb") as file, new_file(join(destination, name)) as copy:
            shutil.copyfileobj(file, copy, _CHUNK)


def _rename(source: str, target: str) -> None:
    _make_folder_of(target)
    tf.io.gfile.rename(source, target, overwrite=True)


@contextlib.contextmanager
def scratch_folder(destination: str) -> Iterator[Path]:
    """Yield a temporary folder, on the file system of ``destination`` unless that is a bucket."""
    with explained("cannot write", destination):
        parent = None if is_bucket(destination) else destination
        folder = tempfile.mkdtemp(prefix=".partial-", dir=parent)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def names_in(folder: str) -> list[str]:
    """Return the names in a folder; none if there is no folder."""
    with explained("cannot list", folder):
        try:
            return sorted(name.rstrip("/") for name in tf.io.gfile.listdir(folder))
        except tf.errors.NotFoundError:
            return []


def remove(path: str) -> None:
    """Remove a file, or a folder with its contents, if it exists."""
    with explained("cannot remove", path):
        try:
            if tf.io.gfile.isdir(path):
                tf.io.gfile.rmtree(path)
            else:
                tf.io.gfile.remove(path)
        except tf.errors.NotFoundError:
            return
