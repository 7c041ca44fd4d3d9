"""Files that only the chief writes.

All tasks run the script, and would write the same files over each other's where they share a
folder. There Keras's functions and callbacks write, on other tasks than the chief, into a folder
that is removed in the end, and read what they have written there. A working folder of a task's own,
and a temporary one that it has made, have what one process would write into them, so that the
script finds it there.
"""

from __future__ import annotations

import atexit
import hashlib
import inspect
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.rendezvous import Rendezvous
from distlaunch_trainer.model.user_model import silence_summary

from .interception import intercepted


def find_own_folder(rendezvous: Rendezvous, *, is_chief: bool) -> str | None:
    """Return the working folder of this task, None if that is the chief's folder too.

    The tasks look for a file that the chief writes: names of machines and disks are no evidence.
    """
    marker: Path | None = None
    if is_chief:
        with suppress(OSError):
            descriptor, name = tempfile.mkstemp(prefix=".distlaunch-", dir=".")
            os.close(descriptor)
            marker = Path(name)
    name = rendezvous.exchange("folder", marker and marker.name, "to start")[0]
    is_shared = name is None or Path(name).exists()
    rendezvous.exchange("seen", True, "to start")
    if marker is not None:
        marker.unlink(missing_ok=True)
    return None if is_shared else str(Path.cwd().resolve())


def file_of_chief(path: Any, cluster: Cluster) -> Any:
    """Return where a task finds a file that all tasks load: a copy if only the chief has it.

    Some programs write on the chief only, as TensorFlow's tutorial for several workers does. A
    collective.
    """
    is_path = isinstance(path, (str, os.PathLike))
    exists = is_path and Path(path).is_file()
    found = cluster.rendezvous.exchange("file", exists, "to load a file")
    if all(found) or not found[0]:
        return path
    content = cluster.broadcast_bytes(Path(path).read_bytes() if cluster.role.is_chief else b"")
    if exists:
        return path
    copy = Path(tempfile.mkdtemp(prefix="distlaunch-"), Path(path).name)
    copy.write_bytes(content)
    atexit.register(shutil.rmtree, copy.parent, ignore_errors=True)
    return str(copy)


@contextmanager
def redirected_writes(library: ModuleType, own_folder: str | None) -> Iterator[None]:
    """Have Keras or tf_keras write into a temporary folder, for the rest of this process."""
    folder = tempfile.mkdtemp(prefix="distlaunch-")
    _Redirection(folder, own_folder).install(library)
    silence_summary(library)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Redirection:
    def __init__(self, folder: str, own_folder: str | None) -> None:
        self._folder = folder
        self._own_folder = own_folder  # of this task alone, into which the script writes itself
        self._made: list[str] = []  # temporary folders of this process, which are its own, too

    def install(self, library: Any) -> None:
        tempfile.mkdtemp = self._noted(tempfile.mkdtemp)
        callbacks = library.callbacks
        for owner, name, parameter in (
            (library.Model, "save", "filepath"),
            (library.Model, "save_weights", "filepath"),
            (library.Model, "export", "filepath"),
            (library.saving, "save_model", "filepath"),
            (library.saving, "save_weights", "filepath"),
            (library.models, "save_model", "filepath"),
            (callbacks.ModelCheckpoint, "__init__", "filepath"),
            (callbacks.CSVLogger, "__init__", "filename"),
            (tf.saved_model, "save", "export_dir"),
        ):
            if hasattr(owner, name):
                _replace_argument(owner, name, parameter, self._to_write)
        # With the chief's files they would be the curves of one run.
        _replace_argument(callbacks.TensorBoard, "__init__", "log_dir", self._to_discard)
        _replace_argument(tf.summary, "create_file_writer", "logdir", self._to_discard)
        for owner, name in (
            (library.Model, "load_weights"),
            (library.saving, "load_model"),
            (library.saving, "load_weights"),
            (library.models, "load_model"),
        ):
            if hasattr(owner, name):
                _replace_argument(owner, name, "filepath", self._to_read)

    def _to_write(self, path: Any) -> Any:
        """Return where to write what the script would write to a path."""
        if not isinstance(path, (str, os.PathLike)):
            return path
        text = os.fspath(path)
        if not self._is_own(text):
            return self._temporary(text)
        if Path(text).is_symlink():
            Path(text).unlink()  # to a file of the project, which this task is not to change
        return path

    def _to_discard(self, path: Any) -> Any:
        """Return where to write what is not to be read beside the chief's files."""
        if not isinstance(path, (str, os.PathLike)) or self._is_made(os.fspath(path)):
            return path
        return self._temporary(os.fspath(path))

    def _to_read(self, path: Any) -> Any:
        """Return where to read what the script would read from a path."""
        if not isinstance(path, (str, os.PathLike)) or self._is_own(os.fspath(path)):
            return path
        written = self._temporary(os.fspath(path))
        return written if os.path.exists(written) else path  # noqa: PTH110

    def _is_own(self, path: str) -> bool:
        """Return whether a path is in the folder of this task alone."""
        if self._is_made(path):
            return True
        if self._own_folder is None or "://" in path:
            return False
        return Path(path).absolute().parent.resolve().is_relative_to(self._own_folder)

    def _is_made(self, path: str) -> bool:
        """Return whether a path is in a temporary folder that this process has made."""
        return any(Path(path).absolute().is_relative_to(folder) for folder in self._made)

    def _noted(self, make: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(make)
        def noted(*arguments: Any, **options: Any) -> Any:
            folder = make(*arguments, **options)
            self._made.append(os.path.abspath(os.fsdecode(folder)))  # noqa: PTH100 - no Path is
            return folder

        return noted

    def _temporary(self, path: str) -> str:
        if path.startswith(self._folder):
            return path
        parent, name = os.path.split(path.rstrip("/"))
        folder = Path(self._folder, hashlib.sha256(parent.encode()).hexdigest()[:16])
        folder.mkdir(exist_ok=True)
        return str(folder / name)


def _replace_argument(
    owner: Any, name: str, parameter: str, replacement: Callable[[Any], Any]
) -> None:
    """Replace one argument of all calls of a function or method."""

    def call(function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        values = arguments.arguments
        if parameter in values:
            values[parameter] = replacement(values[parameter])
        return function(*arguments.args, **arguments.kwargs)

    setattr(owner, name, intercepted(getattr(owner, name), call))
