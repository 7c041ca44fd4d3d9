"""The files of the finished model. Only the chief writes."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import keras
import tensorflow as tf

from . import keras_compat
from .errors import StorageError, TrainerError, gist
from .report import Report
from .storage import names_in, publish, scratch_folder

_WEIGHTS, _KERAS, _SAVED_MODEL = "model.weights.h5", "model.keras", "saved_model.pb"
# In the order in which they become visible.
_FILES = (_WEIGHTS, _KERAS, _SAVED_MODEL)


def serialization_problem(model: keras.Model) -> str | None:
    """Return why ``model.keras`` cannot be written and how to fix it, or None if it can be.

    It serializes the model as Keras does before it writes any weight, so it can be called before
    the training.
    """
    error = _serialization_error(lambda: model)
    if error is None:
        return None
    layers = keras_compat.all_layers(model)
    failing = {id(layer) for layer in layers if _serialization_error(layer.get_config)}
    # A layer that fails only because of a layer inside it is not at fault.
    at_fault = {
        type(layer)
        for layer in layers
        if id(layer) in failing
        and not failing & {id(each) for each in keras_compat.all_layers(layer, include_self=False)}
    }
    return f"Keras cannot serialize {_fix(at_fault, error)}"


def _serialization_error(get_object: Callable[[], object]) -> Exception | None:
    """Return what Keras raises if it serializes an object, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras gives them again as it saves the model
        try:
            json.dumps(keras.saving.serialize_keras_object(get_object()))
        except Exception as error:  # noqa: BLE001 - get_config() is the user's
            return error
    return None


def _fix(at_fault: set[type], error: Exception) -> str:
    """Return what cannot be serialized and how to fix it."""
    users = {each for each in at_fault if each.__module__.partition(".")[0] != "keras"}
    names = ", ".join(sorted(each.__name__ for each in users or at_fault))
    if users:
        classes, them = ("classes", "them") if len(users) > 1 else ("class", "it")
        fix = f"add get_config() and @keras.saving.register_keras_serializable() to {them}"
        return f"the {classes} {names}: {fix}"
    if at_fault:
        return f"the arguments of {names}: write a layer class with get_config() in its place"
    return f"the arguments of compile(): {type(error).__name__}: {gist(error)}"


def files_in(folder: str) -> list[str]:
    """Return which files of a finished model are in ``folder``."""
    names = names_in(folder)
    return [name for name in _FILES if name in names]


def save_model(model: keras.Model, folder: str, report: Report) -> list[str]:
    """Write the finished model: ``model.keras`` and a SavedModel, both loadable without this code.

    If Keras cannot write one of them the other is written, and a warning printed; the weights are
    written in place of ``model.keras``. A model that is there already stays until the whole of the
    new one is beside it.

    Returns
    -------
    list of str
        The files that were written; a SavedModel is named by its ``saved_model.pb``.

    Raises
    ------
    StorageError
        If the folder cannot be written.
    TrainerError
        If Keras can write none of them.
    """
    with scratch_folder(folder) as scratch:
        try:
            written, problems = _write(model, scratch)
        except (tf.errors.OpError, OSError) as error:
            raise StorageError(f"cannot write the model to {folder}: {gist(error)}") from error
        if not written:
            raise TrainerError(f"the model cannot be saved: {'; '.join(problems)}")
        obsolete = [name for name in _FILES if name not in written]
        publish(scratch, folder, last=written[-1], obsolete=obsolete)
    if problems:
        report.warn(f"{'; '.join(problems)}; written: {', '.join(written)}")
    return written


def _write(model: keras.Model, folder: Path) -> tuple[list[str], list[str]]:
    """Write what Keras can of a model; return the files, and why others are missing."""
    written, problems = [], []

    def write(name: str, function: Callable[[], object]) -> bool:
        try:
            function()
        except (tf.errors.OpError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - get_config() and call() are the user's
            reason = (name == _KERAS and serialization_problem(model)) or gist(error)
            problems.append(f"{name} was not written: {reason}")
            return False
        written.append(name)
        return True

    if not write(
        _SAVED_MODEL, lambda: model.export(folder, format="tf_saved_model", verbose=False)
    ):
        shutil.rmtree(folder)
        folder.mkdir()
    if not write(_KERAS, lambda: model.save(folder / _KERAS)):
        (folder / _KERAS).unlink(missing_ok=True)
        write(_WEIGHTS, lambda: model.save_weights(folder / _WEIGHTS))
    return [name for name in _FILES if name in written], problems
