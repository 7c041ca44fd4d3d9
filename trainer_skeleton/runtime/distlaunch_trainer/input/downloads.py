"""Downloads of data and weights: by one task of a machine at a time."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import inspect
import os
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras

from distlaunch_trainer.errors import DataError, summarize


@contextlib.contextmanager
def downloading(what: str, remedy: str) -> Iterator[None]:
    """Let one task of this machine at a time run a block that downloads and caches a file.

    So the tasks do not download it twice, and none reads a file that is still being written, as
    ``keras.utils.get_file`` writes it in place.

    Create no layers in the block: in the scope of a strategy, all tasks create a variable together,
    so one would wait for another that waits for the block.

    Parameters
    ----------
    what
        What is downloaded, for the error.
    remedy
        What to do where it cannot be downloaded.

    Raises
    ------
    DataError
        If the block fails.
    """
    with _machine_lock("downloads"):
        try:
            yield
        except Exception as error:
            raise DataError(f"{what} cannot be downloaded: {summarize(error)}; {remedy}") from error


@contextlib.contextmanager
def _machine_lock(name: str) -> Iterator[None]:
    """Let one task of this machine at a time run a block."""
    lock = Path(tempfile.gettempdir()) / f"distlaunch-{name}-{os.getuid()}.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def share_downloads() -> None:
    """Let one task of this machine at a time call ``keras.utils.get_file``, or unpack an archive.

    What the first one has downloaded or unpacked, the others find. Call it once.
    """
    original = keras.utils.get_file
    signature = inspect.signature(original)

    @functools.wraps(original)
    def get_file(*args: Any, **options: Any) -> Any:
        with _machine_lock("files"), _without_progress_bar():
            return original(*args, **options)

    get_file.__signature__ = signature  # type: ignore[attr-defined]
    for module in [*sys.modules.values()]:  # keras.datasets and keras.applications import it too
        if getattr(module, "get_file", None) is original:
            module.get_file = get_file  # type: ignore[attr-defined]
    for kind in (zipfile.ZipFile, tarfile.TarFile):
        kind.extractall = _unpacked_once(kind.extractall)  # type: ignore[attr-defined]


def _unpacked_once(extract: Callable[..., None]) -> Callable[..., None]:
    """Return ``extractall()`` that leaves files as they are if all are there with their sizes."""

    @functools.wraps(extract)
    def extractall(
        archive: Any, path: Any = None, members: Any = None, *args: Any, **options: Any
    ) -> None:
        with _machine_lock("files-unpacked"):
            if members is None:
                files = [(Path(path or ".", name), size) for name, size in _files_in(archive)]
                if files and all(f.is_file() and f.stat().st_size == size for f, size in files):
                    return
            extract(archive, path or ".", members, *args, **options)

    return extractall


def _files_in(archive: zipfile.ZipFile | tarfile.TarFile) -> list[tuple[str, int]]:
    """Return the names and sizes of the files of an archive."""
    if isinstance(archive, zipfile.ZipFile):
        return [(each.filename, each.file_size) for each in archive.infolist() if not each.is_dir()]
    return [(each.name, each.size) for each in archive.getmembers() if each.isfile()]


@contextlib.contextmanager
def _without_progress_bar() -> Iterator[None]:
    """Have Keras print no progress bars into files and pipes, of a line for each kilobyte."""
    is_enabled = keras.config.is_interactive_logging_enabled()
    if not sys.stdout.isatty():
        keras.config.disable_interactive_logging()
    try:
        yield
    finally:
        if is_enabled:
            keras.config.enable_interactive_logging()
