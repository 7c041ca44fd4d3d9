"""The state of one call of ``fit``, from which a later run of the script resumes it."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict, dataclass
from typing import Any

import keras
import ml_dtypes
import numpy as np
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.cluster import Cluster
from distlaunch_trainer.errors import ModelError, StorageError
from distlaunch_trainer.report import Report
from distlaunch_trainer.storage import join, read_if_there, remove_files, write_whole

_STATE = "state"


@dataclass(frozen=True)
class FitState:
    """Where a call of ``fit`` was saved.

    Attributes
    ----------
    epoch
        Epochs done; those of ``initial_epoch`` count.
    batch
        Batches of the next epoch that were trained too.
    step
        Steps of all calls of ``fit`` of the script.
    epochs
        The records of the epochs of all calls.
    is_done
        Whether the call had returned.
    """

    epoch: int
    batch: int
    step: int
    epochs: list[dict[str, Any]]
    is_done: bool = False


class Backup:
    """The file with the state of one call of ``fit``; only the chief writes and reads it.

    Parameters
    ----------
    folder
        The folder for checkpoints.
    call
        Which call of the script it is, from 1.
    """

    def __init__(self, folder: str, call: int, cluster: Cluster, report: Report) -> None:
        self._folder = folder
        self._name = f"fit-{call}.npz"
        self._cluster = cluster
        self._report = report

    @property
    def path(self) -> str:
        """The path of the file."""
        return join(self._folder, self._name)

    def clear(self) -> None:
        """Remove the file."""
        if self._cluster.role.is_chief:
            remove_files(self._folder, self._name)

    def exists(self) -> bool:
        """Return whether there is something to resume from, on every task alike."""
        data = self._data() if self._cluster.role.is_chief else None
        return bool(self._cluster.all_reduce_sum(np.array(data is not None, np.int64)))

    def save(self, model: keras.Model, state: FitState) -> None:
        """Write the state of a model, its optimizers and the call.

        Raises
        ------
        StorageError
            If the file cannot be written.
        """
        if not self._cluster.role.is_chief:
            return
        values = [
            tf.convert_to_tensor(v.value).numpy() for v in keras_compat.saved_variables(model)
        ]
        names = [value.dtype.name for value in values]
        facts = json.dumps({"state": asdict(state), "types": names}).encode()
        file = io.BytesIO()
        arrays = {str(n): _storable(value) for n, value in enumerate(values)}
        np.savez(file, **{_STATE: np.frombuffer(facts, np.uint8)}, **arrays)
        write_whole(self.path, file.getvalue())
        self._report.event("checkpoint", step=state.step, path=self.path)

    def restore(self, model: keras.Model) -> FitState | None:
        """Give all tasks the state that was saved, or that a callback of the script restored.

        Returns
        -------
        FitState or None
            The state; None if there is none, and nothing is changed.

        Raises
        ------
        ModelError
            If it is that of another model.
        StorageError
            If the file cannot be read.
        """
        state, values = self._saved(model) if self._cluster.role.is_chief else (None, [])
        facts = json.dumps(state and asdict(state))
        facts = json.loads(self._cluster.broadcast_text(facts))
        if facts is None:
            return None
        variables = keras_compat.saved_variables(model)
        if not self._cluster.role.is_chief:
            values = [np.zeros(v.shape, v.dtype) for v in variables]
        for variable, value in zip(variables, values, strict=True):
            variable.assign(self._cluster.broadcast(value))
        return FitState(**facts)

    def _saved(self, model: keras.Model) -> tuple[FitState | None, list[np.ndarray]]:
        """Return the state to start from, and its values."""
        variables = keras_compat.saved_variables(model)
        by_script = keras_compat.initial_epoch(model) or 0  # BackupAndRestore of the script
        data = self._data()
        if data is not None:
            state, values = _read(data, self.path)
            if state.epoch >= by_script:
                _check_shapes(values, variables, self.path)
                return state, values
        if not by_script:
            return None, []
        values = [tf.convert_to_tensor(v.value).numpy() for v in variables]
        return FitState(by_script, 0, 0, []), values

    def _data(self) -> bytes | None:
        return read_if_there(self.path)


def _read(data: bytes, path: str) -> tuple[FitState, list[np.ndarray]]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            facts = json.loads(stored[_STATE].tobytes())
            values = [_restored(stored[str(n)], name) for n, name in enumerate(facts["types"])]
            return FitState(**facts["state"]), values
    except (ValueError, KeyError, TypeError, OSError, zipfile.BadZipFile) as error:
        raise StorageError(
            f"the checkpoint {path} is damaged ({error}): --no-resume starts from scratch"
        ) from error


def _check_shapes(values: list[np.ndarray], variables: list[Any], path: str) -> None:
    shapes = [tuple(v.shape) for v in variables]
    for value, shape, variable in zip(values, shapes, variables, strict=False):
        if value.shape != shape:
            raise ModelError(
                f"the checkpoint {path} is of another model: {variable.path} is {value.shape} in "
                f"it and {shape} here; use a new --job-dir, or --no-resume to start from scratch"
            )
    if len(values) != len(shapes):
        raise ModelError(
            f"the checkpoint {path} is of another model: it has {len(values)} variables, this one "
            f"{len(shapes)}; use a new --job-dir, or --no-resume to start from scratch"
        )


def _storable(value: np.ndarray) -> np.ndarray:
    """Return a value in a type that numpy's file format has: bfloat16 as bytes."""
    return value if value.dtype.isbuiltin == 1 else value.view(f"u{value.dtype.itemsize}")


def _restored(stored: np.ndarray, name: str) -> np.ndarray:
    kind = getattr(ml_dtypes, name, None)
    return stored if kind is None else stored.view(kind)
