"""The state of one call of ``fit``, from which a later run of the script resumes it."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import keras
import ml_dtypes
import numpy as np
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.callbacks import restore_states, states_of, templates
from distlaunch_trainer.cluster import Cluster
from distlaunch_trainer.errors import ModelError, StorageError
from distlaunch_trainer.report import Report
from distlaunch_trainer.storage import join, read_if_there, write_whole

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
    position
        Where the reading of the data is, empty if that is not known.
    step
        Steps of all calls of ``fit`` of the script.
    epochs
        The records of the epochs of all calls.
    own_epochs
        How many of these are of this call.
    callbacks
        The state of its callbacks.
    is_done
        Whether the call had returned.
    """

    epoch: int
    batch: int
    position: Sequence[int | None]
    step: int
    epochs: list[dict[str, Any]]
    own_epochs: int
    callbacks: list[Any] = field(default_factory=list)
    is_done: bool = False

    def own_records(self) -> list[dict[str, Any]]:
        """Return the records of the epochs of this call."""
        return self.epochs[len(self.epochs) - self.own_epochs :]


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
        self._saved: tuple[FitState, list[np.ndarray]] | None = None  # on the chief

    @property
    def path(self) -> str:
        """The path of the file."""
        return join(self._folder, self._name)

    def load(self) -> FitState | None:
        """Read the file; return the state in it on every task, None if there is no file.

        Raises
        ------
        StorageError
            If the file cannot be read.
        """
        data = read_if_there(self.path) if self._cluster.role.is_chief else None
        if data is not None:
            self._saved = _read(data, self.path)
        return self._on_all_tasks(self._saved and self._saved[0])

    def save(
        self, model: keras.Model, callbacks: list[keras.callbacks.Callback], state: FitState
    ) -> None:
        """Write the state of a model, its optimizers, the callbacks and the call.

        Raises
        ------
        ModelError
            If the state of a callback cannot be saved.
        StorageError
            If the file cannot be written.
        """
        if not self._cluster.role.is_chief:
            return
        states, arrays = states_of(callbacks)
        state = replace(state, callbacks=states)
        values = [*_values(model), *arrays]
        names = [value.dtype.name for value in values]
        facts = json.dumps({"state": asdict(state), "types": names}).encode()
        file = io.BytesIO()
        stored = {str(n): _storable(value) for n, value in enumerate(values)}
        np.savez(file, **{_STATE: np.frombuffer(facts, np.uint8)}, **stored)
        write_whole(self.path, file.getvalue())
        self._report.event("checkpoint", step=state.step, path=self.path)

    def restore(
        self, model: keras.Model, callbacks: list[keras.callbacks.Callback], start: FitState
    ) -> FitState | None:
        """Give all tasks the state that was loaded, or that a callback of the script restored.

        Parameters
        ----------
        model, callbacks
            What to restore.
        start
            The state of a call that starts from scratch.

        Returns
        -------
        FitState or None
            The state; None if there is none, and nothing is changed.

        Raises
        ------
        ModelError
            If it is that of another model.
        """
        state, values = self._newest(model, start) if self._cluster.role.is_chief else (None, [])
        state = self._on_all_tasks(state)
        if state is None:
            return None
        variables = keras_compat.saved_variables(model)
        if not self._cluster.role.is_chief:
            values = [np.zeros(v.shape, v.dtype) for v in variables]
            values += templates(state.callbacks)
        values = [self._cluster.broadcast(value) for value in values]
        for variable, value in zip(variables, values, strict=False):
            variable.assign(value)
        if state.callbacks:
            arrays = values[len(variables) :]
            restore_states(callbacks, state.callbacks, arrays, self._report)
        return state

    def _newest(self, model: keras.Model, start: FitState) -> tuple[FitState | None, list[Any]]:
        """Return the state to start from, and its values."""
        by_script = keras_compat.initial_epoch(model) or 0  # BackupAndRestore of the script
        if self._saved and self._saved[0].epoch >= by_script:
            state, values = self._saved
            variables = keras_compat.saved_variables(model)
            arrays = len(templates(state.callbacks))
            _check_shapes(values[: len(values) - arrays], variables, self.path)
            return state, values
        return (
            (replace(start, epoch=by_script, position=()), _values(model))
            if by_script
            else (None, [])
        )

    def _on_all_tasks(self, state: FitState | None) -> FitState | None:
        """Return the chief's state."""
        facts = json.loads(self._cluster.broadcast_text(json.dumps(state and asdict(state))))
        return FitState(**facts) if facts else None


def _values(model: keras.Model) -> list[np.ndarray]:
    variables = keras_compat.saved_variables(model)
    return [tf.convert_to_tensor(variable.value).numpy() for variable in variables]


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
