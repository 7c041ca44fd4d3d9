"""Files that only the chief writes.

All tasks run the script, and would write the same files over each other's. On other tasks than the
chief, Keras's functions and callbacks write into a folder that is removed in the end. They read
what they have written there, because the chief's file may be on another machine.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import tensorflow as tf

from distlaunch_trainer.user_model import silence_summary


@contextmanager
def redirected_writes(library: ModuleType) -> Iterator[None]:
    """Have Keras or tf_keras write into a temporary folder, for the rest of this process."""
    folder = tempfile.mkdtemp(prefix="distlaunch-")
    _Redirection(folder).install(library)
    silence_summary(library)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Redirection:
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def install(self, library: Any) -> None:
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
            (callbacks.TensorBoard, "__init__", "log_dir"),
            (tf.summary, "create_file_writer", "logdir"),
            (tf.saved_model, "save", "export_dir"),
        ):
            if hasattr(owner, name):
                _replace_argument(owner, name, parameter, self._to_write)
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
        if text.startswith(self._folder):
            return path
        parent, name = os.path.split(text.rstrip("/"))
        folder = Path(self._folder, hashlib.sha256(parent.encode()).hexdigest()[:16])
        folder.mkdir(exist_ok=True)
        return str(folder / name)

    def _to_read(self, path: Any) -> Any:
        written = self._to_write(path)
        is_path = isinstance(path, (str, os.PathLike))
        return written if is_path and os.path.exists(written) else path  # noqa: PTH110


def _replace_argument(
    owner: Any, name: str, parameter: str, replacement: Callable[[Any], Any]
) -> None:
    """Replace one argument of all calls of a function or method."""
    function = getattr(owner, name)
    signature = inspect.signature(function)

    def call(*args: Any, **options: Any) -> Any:
        bound = signature.bind(*args, **options)
        if parameter in signature.parameters:
            bound.apply_defaults()
            bound.arguments[parameter] = replacement(bound.arguments[parameter])
        return function(*bound.args, **bound.kwargs)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__signature__ = signature  # type: ignore[attr-defined]
    setattr(owner, name, call)
