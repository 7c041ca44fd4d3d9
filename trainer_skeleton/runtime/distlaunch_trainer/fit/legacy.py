"""The calls of ``fit`` of a tf_keras script, and what they report.

tf_keras supports the strategy by itself, and only the arguments of its ``fit`` are changed. Epochs
are reported; what is saved and resumed is left to the script's callbacks.
"""

from __future__ import annotations

import inspect
import math
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from distlaunch_trainer.errors import summarize
from distlaunch_trainer.task.storage import make_folder, publish, scratch_folder

from .interception import intercepted, set_verbosity
from .session import Session

_SAVED_MODEL = "saved_model.pb"
_STOPPED = "while a tf_keras script ran: what its callbacks have saved is kept"
_FROM_SCRATCH = (
    "fit() of tf_keras starts from scratch, also in the job folder of an earlier run, unless the "
    "script has BackupAndRestore"
)
_SECONDS_BETWEEN_EVENTS = 0.5


class LegacySession(Session):
    """The calls of ``fit`` of one task's script, for tf_keras."""

    def install(self) -> None:
        """Report all calls of ``fit``, and print the progress of tf_keras on the chief only."""
        self.stop.end_at_once(_STOPPED)
        self.report.log(_FROM_SCRATCH)
        if self.report.figures.limit:
            self.report.warn("stop_if has no effect on a tf_keras script")
        model = tf_keras.Model
        model.fit = intercepted(model.fit, self._fit)
        for name in ("evaluate", "predict"):
            setattr(model, name, intercepted(getattr(model, name), self._evaluate))

    def save_model(self, folder: str) -> list[str]:
        """Write the model that was trained last as a SavedModel, on the chief; a collective.

        If tf_keras cannot write it, a warning is printed.
        """
        is_chief = self.cluster.role.is_chief
        if is_chief:
            make_folder(folder)
        with scratch_folder(folder if is_chief else tempfile.gettempdir()) as scratch:
            try:
                self.model.save(str(scratch), save_format="tf")
            except Exception as error:  # noqa: BLE001 - call() and get_config() are the user's
                self.report.warn(f"{_SAVED_MODEL} was not written: {summarize(error)}")
                return []
            if is_chief:
                publish(scratch, folder, last=_SAVED_MODEL)
        return [_SAVED_MODEL]

    def _evaluate(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        set_verbosity(arguments.arguments, is_chief=self.cluster.role.is_chief)
        return function(*arguments.args, **arguments.kwargs)

    def _fit(self, function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        values = arguments.arguments
        set_verbosity(values, is_chief=self.cluster.role.is_chief)
        self.model = values["self"]
        own = values["callbacks"] or []
        if isinstance(own, tf_keras.callbacks.CallbackList):
            own = own.callbacks
        values["callbacks"] = [*tf.nest.flatten(own), _Progress(self, values)]
        with self.report.figures.training():
            return function(*arguments.args, **arguments.kwargs)


class _Progress(tf_keras.callbacks.Callback):
    """The last callback of a call of ``fit``; every task has one."""

    def __init__(self, session: LegacySession, values: Mapping[str, Any]) -> None:
        super().__init__()
        self._supports_tf_logs = True  # logs are converted when they are read
        self._session = session
        self._initial_epoch = values["initial_epoch"]
        self._epochs_before = len(session.epochs) - self._initial_epoch  # of other calls
        self._batch_size, self._examples = _sizes(values)
        self._epoch = 0  # of all calls
        self._first_step = session.step
        self._started = 0.0
        self._seconds: float | None = None
        self._next_event = 0.0

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - the arguments of Keras
        self._session.report_start(
            self._session.step,
            self.params["epochs"] - self._initial_epoch,
            global_batch=self._batch_size,
            examples=self._examples,
            steps_per_epoch=self.params.get("steps"),
        )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self._epoch = self._epochs_before + epoch + 1
        self._first_step = self._session.step
        self._started = time.perf_counter()
        self._seconds = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        session = self._session
        session.step = self._first_step + batch + 1
        session.report.figures.progress(session.step, self._epoch, self._batch_size or 0)
        if time.monotonic() >= self._next_event:
            # The loss of a batch is that of all replicas summed, in tf_keras on several tasks.
            session.report.event("step", step=session.step, epoch=self._epoch, loss=None)
            self._next_event = time.monotonic() + _SECONDS_BETWEEN_EVENTS

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        self._end_training()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        session = self._session
        seconds = self._end_training()
        record = {
            "epoch": self._epoch,
            "step": session.step,
            "examples": self._examples,
            "examples_per_second": self._examples / seconds if self._examples else None,
            "logs": {
                name: np.asarray(value, float).tolist() for name, value in (logs or {}).items()
            },
        }
        session.epochs.append(record)
        session.report.record_epoch(record)
        session.facts["steps_per_epoch"] = session.step - self._first_step

    def _end_training(self) -> float:
        """Return the seconds of an epoch without its validation."""
        if self._seconds is None:
            self._seconds = time.perf_counter() - self._started
        return self._seconds


def _sizes(values: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the rows of a batch and of an epoch of arrays; None for data that has batches."""
    first = next(iter(tf.nest.flatten(values["x"])), None)
    if not isinstance(first, (np.ndarray, tf.Tensor)):
        return None, None
    batch = values["batch_size"] or 32
    if values["steps_per_epoch"]:
        return batch, batch * values["steps_per_epoch"]
    return batch, math.floor(len(first) * (1 - values["validation_split"]))
