"""The files of the finished model. Only the chief writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import keras
import tensorflow as tf

from distlaunch_trainer.errors import ModelError, StorageError, summarize
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.task import messages
from distlaunch_trainer.task.storage import names_in, publish, scratch_folder

from .model_loading import file_problem, import_note, saving_problem

_WEIGHTS, _KERAS, _SAVED_MODEL = "model.weights.h5", "model.keras", "saved_model.pb"
_FILES = (_WEIGHTS, _KERAS, _SAVED_MODEL)


def files_in(folder: str) -> list[str]:
    """Return which files of a finished model are in ``folder``."""
    names = names_in(folder)
    return [name for name in _FILES if name in names]


def save_model(model: keras.Model, folder: str, report: Report) -> list[str]:
    """Write the trained model: ``model.keras``, then a SavedModel, both loadable without this code.

    ``model.keras`` is in the folder before the SavedModel is written, which can fail for more
    reasons. If Keras cannot write one of them, a warning is printed; the weights are written in
    place of ``model.keras``. An earlier model in the folder is kept until ``model.keras`` is beside
    it. The names of what was written are returned, of a SavedModel ``saved_model.pb``.
    """
    problems: list[str] = []
    # First: an export that fails must lose nothing.
    keras_file = _save(model, folder, problems)
    kept = [keras_file] if keras_file else []
    is_exported = _export(model, folder, kept, problems)
    if not keras_file and not is_exported:
        raise ModelError(f"the model cannot be saved: {'; '.join(problems)}")
    written = [*kept, *([_SAVED_MODEL] if is_exported else [])]
    if keras_file == _KERAS and (note := import_note(model)):
        report.log(note)
    if problems:
        report.warn(f"{'; '.join(problems)}; written: {', '.join(written)}")
    return written


def _save(model: keras.Model, folder: str, problems: list[str]) -> str | None:
    """Write ``model.keras`` or the weights; return the name, or None if Keras can write neither.

    A ``model.keras`` that Keras cannot load is no model: the weights are, and an error is printed.
    """
    writers = {_KERAS: model.save, _WEIGHTS: model.save_weights}
    for name, write in writers.items():
        with scratch_folder(folder) as scratch:
            try:
                write(scratch / name)
            except (tf.errors.OpError, OSError) as error:
                raise StorageError(
                    f"cannot write the model to {folder}: {summarize(error)}"
                ) from error
            except Exception as error:  # noqa: BLE001 - get_config() is the user's
                reason = (name == _KERAS and saving_problem(model)) or summarize(error)
                problems.append(f"{name} was not written: {reason}")
            else:
                if name == _KERAS and (problem := file_problem(scratch / name, model)):
                    messages.error(f"model.keras cannot be loaded, and is left out: {problem}")
                    problems.append("model.keras was left out")
                    continue
                _publish(scratch, folder, name, kept=())
                return name
    return None


def _export(model: keras.Model, folder: str, kept: Sequence[str], problems: list[str]) -> bool:
    """Write the SavedModel beside the files ``kept``; return whether Keras can."""
    with scratch_folder(folder) as scratch:
        try:
            with _called_for_inference(model):
                model.export(scratch, format="tf_saved_model", verbose=False)
        except Exception as error:  # noqa: BLE001 - call() is the user's
            problems.append(f"{_SAVED_MODEL} was not written: {summarize(error)}")
            return False
        _publish(scratch, folder, _SAVED_MODEL, kept)
    return True


@contextmanager
def _called_for_inference(model: keras.Model) -> Iterator[None]:
    """Let ``export()`` serve the model as ``predict()`` calls it.

    It serves ``model.__call__``, and layers of random augmentation are in training by default.
    """
    call = model.__call__
    model.__dict__["__call__"] = lambda *inputs: call(*inputs, training=False)
    try:
        yield
    finally:
        del model.__dict__["__call__"]


def _publish(scratch: Path, folder: str, last: str, kept: Sequence[str]) -> None:
    obsolete = [name for name in _FILES if name != last and name not in kept]
    publish(scratch, folder, last=last, obsolete=obsolete)
