"""Evaluations of a saved model (``--evaluate``) and of ``model.evaluate()`` in a callback."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import ModelError, StorageError, summarize
from distlaunch_trainer.input.data_setup import open_evaluation_data
from distlaunch_trainer.input.examples.arrays import Arrays
from distlaunch_trainer.keras_compat import fit_calls
from distlaunch_trainer.model.model_state import ModelState
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.saving.checkpoints import Checkpoint, Checkpoints
from distlaunch_trainer.step.step_functions import StepFunctions
from distlaunch_trainer.task.storage import join, names_in, read_whole

from .evaluator import Evaluator

STEPS_PER_EXECUTION = 50
_WEIGHT_FILES = ("model.keras", "model.weights.h5")
_BATCH_SIZE = 32  # Keras's default


def read_checkpoint(path: str, report: Report) -> Checkpoint | None:
    """Return the checkpoint at ``path``, None if that is no checkpoint.

    Raises
    ------
    StorageError
        If it is damaged.
    """
    folder, _, name = path.rstrip("/").rpartition("/")
    if name.endswith((".keras", ".h5")):  # a file, which has no manifest in it
        return None
    return Checkpoints(folder or ".", report).read(name)


def restore_weights(
    model: keras.Model, path: str, checkpoint: Checkpoint | None, cluster: Cluster
) -> None:
    """Set the weights of a model to saved ones on all tasks; only the chief reads them.

    Parameters
    ----------
    model
        A built model.
    path
        A ``.keras`` or ``.weights.h5`` file, or a folder with one.
    checkpoint
        The checkpoint at ``path``, if it is one; needed on the chief only.
    cluster
        The tasks.

    Raises
    ------
    ModelError
        If the weights are not of this model.
    StorageError
        If they cannot be read.
    """
    if cluster.role.is_chief:
        if checkpoint is None:
            _load_weights(model, path)
        else:
            state = ModelState(model, cluster.strategy, weights_only=True)
            state.check_same(checkpoint.model)
            state.assign([checkpoint.values[name] for name in state.variables])
    values = [tf.convert_to_tensor(variable.value).numpy() for variable in model.variables]
    for variable, value in zip(model.variables, cluster.broadcast_all(values), strict=True):
        variable.assign(value)


def _load_weights(model: keras.Model, path: str) -> None:
    if not path.endswith((".keras", ".weights.h5")):
        present = [name for name in _WEIGHT_FILES if name in names_in(path)]
        if not present:
            raise StorageError(
                f"--evaluate {path}: found no checkpoint, .keras or .weights.h5 file there"
            )
        path = join(path, present[0])
    data = read_whole(path)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.rpartition("/")[2])
        copy.write_bytes(data)
        try:
            model.load_weights(copy)
        except Exception as error:
            raise ModelError(
                f"{path} does not fit the model of trainer/model.py: {summarize(error)}"
            ) from error


@contextmanager
def collective_evaluate(
    model: keras.Model, functions: StepFunctions, cluster: Cluster, report: Report
) -> Iterator[None]:
    """Let ``model.evaluate()`` in callbacks use all replicas: Keras's own fails on several tasks.

    It has Keras's arguments and results, and is to be called on all tasks.
    """
    if cluster.replicas == 1:
        yield
        return
    model.evaluate = _evaluate_function(model, functions, cluster, report)
    try:
        yield
    finally:
        del model.evaluate


def _evaluate_function(
    model: keras.Model, functions: StepFunctions, cluster: Cluster, report: Report
) -> Callable[..., Any]:
    def evaluate(  # noqa: PLR0917 - the arguments of Keras
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",  # noqa: ARG001 - an argument of Keras
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
    ) -> Any:
        is_array = y is not None or isinstance(x, (np.ndarray, tf.Tensor, list, tuple, dict))
        value = Arrays(x, y, sample_weight) if is_array else x
        if steps is not None and isinstance(value, tf.data.Dataset):
            value = value.take(steps)
        batch = max(batch_size or _BATCH_SIZE, cluster.replicas)
        evaluator = Evaluator(
            model,
            functions,
            cluster,
            open_evaluation_data(value, cluster, report, global_batch=batch),
            callbacks=keras.callbacks.CallbackList(callbacks, model=model),
            calls_batch_hooks=bool(callbacks),
        )
        logs = evaluator.evaluate(STEPS_PER_EXECUTION)
        return fit_calls.results_of(model, logs, return_dict=return_dict)

    return evaluate
