"""The calls of ``fit`` of a tf_keras script: what they report, and where they start.

tf_keras supports the strategy by itself, and only the arguments of its ``fit`` are changed. Epochs
are reported and saved, and SIGTERM stops all tasks at one step.
"""

from __future__ import annotations

import inspect
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import ModelError, StorageError, summarize
from distlaunch_trainer.loop.callbacks import append_to_log
from distlaunch_trainer.loop.stopping import stop_error, vote_to_stop
from distlaunch_trainer.task.storage import (
    explained,
    join,
    make_folder,
    names_in,
    publish,
    read_if_there,
    remove,
    scratch_folder,
    write_whole,
)

from .interception import intercepted, set_verbosity
from .session import AFTER_FIT, Session

_SAVED_MODEL = "saved_model.pb"
_AGREE_SECONDS = 0.5  # more often would cost time
# A clock that measures almost nothing must not put the next vote off without end.
_MAX_BATCHES_BETWEEN = 10_000


@dataclass(frozen=True)
class _FitState:
    """Where a call of ``fit`` was saved."""

    epoch: int  # epochs done; those of initial_epoch count
    step: int  # of all calls of fit() of the script
    epochs: list[dict[str, Any]]  # the records of all calls
    own_epochs: int  # how many of these are of this call


class LegacySession(Session):
    """The calls of ``fit`` of one task's script, for tf_keras."""

    def install(self) -> None:
        """Report all calls of ``fit``, and print the progress of tf_keras on the chief only."""
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
        with scratch_folder(folder) if is_chief else _unread_folder() as scratch:
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
        self._calls += 1
        self.model = values["self"]
        backup = _Backup(self._checkpoints_dir, self._calls, self.cluster)
        own = values["callbacks"] or []
        if isinstance(own, tf_keras.callbacks.CallbackList):
            own = own.callbacks
        own = tf.nest.flatten(own)
        first = values["initial_epoch"]
        saved = backup.load()
        if saved:
            _build(self.model, values["x"])
            backup.restore(self.model)
            self._resume(saved, values, own)
        values["callbacks"] = [*own, _Progress(self, backup, saved, values)]
        try:
            with self.report.figures.training():
                history = function(*arguments.args, **arguments.kwargs)
        finally:
            self.stop.end_at_once(AFTER_FIT)
        if saved:
            _put_before(history, saved.epochs[len(saved.epochs) - saved.own_epochs :], first)
        return history

    def _resume(self, saved: _FitState, values: dict[str, Any], callbacks: list[Any]) -> None:
        """Continue after the epochs of an earlier run."""
        self.step, self.epochs = saved.step, list(saved.epochs)
        values["initial_epoch"] = min(saved.epoch, values["epochs"])
        for callback in callbacks:
            if isinstance(callback, tf_keras.callbacks.CSVLogger):
                append_to_log(callback, saved.epoch)
        self.report_resume(saved.step, saved.epoch + 1, is_done=saved.epoch >= values["epochs"])


class _Backup:
    """The files with the state of one call of ``fit`` at the end of its last epoch."""

    def __init__(self, folder: str, call: int, cluster: Cluster) -> None:
        self._folder = folder
        self._name = f"fit-{call}"
        self.path = join(folder, f"{self._name}.json")  # of the file that names the others
        self._cluster = cluster
        self._values = ""  # the prefix of the files with the values, in the same folder

    def load(self) -> _FitState | None:
        """Return the state of the chief on every task, None if there is none."""
        data = read_if_there(self.path) if self._cluster.role.is_chief else None
        data = self._cluster.broadcast_bytes(b"null" if data is None else data)
        try:
            stored = json.loads(data)
            if stored is None:
                return None
            self._values = stored["values"]
            return _FitState(**stored["state"])
        except (ValueError, TypeError, KeyError) as error:
            raise StorageError(
                f"the checkpoint {self.path} is damaged ({error}): --no-resume starts from scratch"
            ) from error

    def restore(self, model: tf_keras.Model) -> None:
        """Restore the variables of a loaded state, later ones as soon as they are created."""
        prefix = join(self._folder, self._values)
        try:
            with explained("cannot read the checkpoint", prefix):
                _values_of(model).read(prefix).expect_partial()
        except ValueError as error:
            raise ModelError(
                f"the checkpoint {prefix} is of another model ({summarize(error)}); use a new "
                "--job-dir, or --no-resume to start from scratch"
            ) from error

    def save(self, model: tf_keras.Model, state: _FitState, name: str) -> None:
        """Write the values, then the state, and remove the values before; a collective.

        ``name`` differs from that of the values before.
        """
        if not self._cluster.role.is_chief:
            with _unread_folder() as folder:
                _values_of(model).write(str(folder / "values"))
            return
        values = f"{self._name}-{name}"
        prefix = join(self._folder, values)
        with explained("cannot write the checkpoint", prefix):
            _values_of(model).write(prefix)
        facts = {"values": values, "state": asdict(state)}
        write_whole(self.path, json.dumps(facts).encode())
        for file in names_in(self._folder):
            if file.startswith(f"{self._name}-") and not file.startswith(f"{values}."):
                remove(join(self._folder, file))


@contextmanager
def _unread_folder() -> Iterator[Path]:
    """Yield a folder for what a task must write with the chief, which is removed."""
    with tempfile.TemporaryDirectory(prefix="distlaunch-") as folder:
        yield Path(folder)


def _values_of(model: tf_keras.Model) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(model=model, optimizer=model.optimizer)


def _build(model: tf_keras.Model, x: Any) -> None:
    """Create the variables of a model, which a call of ``fit`` that was done would not create."""
    if model.built:
        return
    if isinstance(x, tf.data.Dataset):
        model(tf_keras.utils.unpack_x_y_sample_weight(next(iter(x)))[0])
    elif all(isinstance(part, (np.ndarray, tf.Tensor)) for part in tf.nest.flatten(x)):
        model(tf.nest.map_structure(lambda part: part[:1], x))


def _put_before(history: Any, records: Sequence[Mapping[str, Any]], first: int) -> None:
    """Put the epochs of an earlier run, from ``first`` on, into the history of a call."""
    history.epoch = [*range(first, first + len(records)), *history.epoch]
    for name in {**records[-1]["logs"], **history.history}:
        before = [record["logs"][name] for record in records if name in record["logs"]]
        history.history[name] = before + history.history.get(name, [])


class _Agreement:
    """The votes of all tasks on whether to stop, about every half second."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._batches = 0
        self._due = 1
        self._interval = 1
        self._last = time.perf_counter()

    def restart_clock(self) -> None:
        """Leave out the time since the last vote, as no batches were trained in it."""
        self._last = time.perf_counter()

    def is_due(self) -> bool:
        """Count a batch; return whether all tasks vote after it."""
        self._batches += 1
        return self._batches >= self._due

    def reach(self, *, vote: int, loss: float) -> tuple[bool, float]:
        """Return whether all tasks are to stop, and the mean of all losses; a collective."""
        seconds = max(time.perf_counter() - self._last, 1e-6) / self._interval
        batches = min(_AGREE_SECONDS / seconds, 4 * self._interval, _MAX_BATCHES_BETWEEN)
        # The chief's clock counts: all tasks must vote after the same batch.
        proposal = batches if self._cluster.role.is_chief else 0.0
        own = np.array([vote, loss, proposal], np.float64)
        stops, total, batches = self._cluster.all_reduce_sum(own).tolist()
        self._interval = max(1, int(batches))
        self._due = self._batches + self._interval
        self._last = time.perf_counter()
        return stops > 0, total / self._cluster.role.num_workers


class _Progress(tf_keras.callbacks.Callback):
    """The last callback of a call of ``fit``; every task has one."""

    def __init__(
        self,
        session: LegacySession,
        backup: _Backup,
        saved: _FitState | None,
        values: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self._supports_tf_logs = True  # logs are converted when they are read
        self._session = session
        self._backup = backup
        self._epoch = values["initial_epoch"]
        self._batch_size, self._examples = _sizes(values)
        self._own_epochs = saved.own_epochs if saved else 0
        self._first_step = session.step
        self._started = time.perf_counter()
        self._seconds: float | None = None
        self._agreement = _Agreement(session.cluster)

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - the arguments of Keras
        session = self._session
        session.cluster.barrier()  # from here on all tasks can agree to stop
        session.stop.defer()
        session.report_start(
            session.step,
            self.params["epochs"] - self._epoch,
            global_batch=self._batch_size,
            examples=self._examples,
            steps_per_epoch=self.params.get("steps"),
        )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self._epoch = epoch
        self._first_step = self._session.step
        self._started = time.perf_counter()
        self._seconds = None
        self._agreement.restart_clock()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        session = self._session
        session.step = self._first_step + batch + 1
        examples = self._batch_size or 0
        session.report.figures.progress(session.step, len(session.epochs) + 1, examples)
        if self._agreement.is_due():
            self._agree(_plain_logs(logs or {}).get("loss", math.nan))

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        self._end_training()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        if self._agreement.is_due():
            self._agree(math.nan)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        session = self._session
        seconds = self._end_training()
        record = {
            "epoch": len(session.epochs) + 1,
            "step": session.step,
            "examples": self._examples,
            "examples_per_second": self._examples / seconds if self._examples else None,
            "logs": _plain_logs(logs or {}),
        }
        session.epochs.append(record)
        self._own_epochs += 1
        session.report.record_epoch(record)
        session.facts["steps_per_epoch"] = session.step - self._first_step
        self._save(self.params["epochs"] if self.model.stop_training else epoch + 1, f"{epoch + 1}")
        self._agree(math.nan)

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        if self._seconds is not None:  # trained
            # After what other callbacks change in the end, e.g. EarlyStopping.
            self._save(self.params["epochs"], "end")

    def _end_training(self) -> float:
        """Return the seconds of an epoch without its validation."""
        if self._seconds is None:
            self._seconds = time.perf_counter() - self._started
        return self._seconds

    def _save(self, epoch: int, name: str) -> None:
        session = self._session
        state = _FitState(epoch, session.step, session.epochs, self._own_epochs)
        self._backup.save(self.model, state, name)
        session.report.event("checkpoint", step=session.step, path=self._backup.path)

    def _agree(self, loss: float) -> None:
        session = self._session
        vote = vote_to_stop(session.stop, session.report, session.cluster)
        must_stop, loss = self._agreement.reach(vote=vote, loss=loss)
        if math.isfinite(loss):
            epoch = len(session.epochs) + 1
            session.report.event("step", step=session.step, epoch=epoch, loss=loss)
        if must_stop:
            saved = f" at step {session.step}: the last whole epoch is saved"
            raise stop_error(session.stop, session.report, session.cluster, saved)


def _sizes(values: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the rows of a batch and of an epoch of arrays; None for data that has batches."""
    first = next(iter(tf.nest.flatten(values["x"])), None)
    if not isinstance(first, (np.ndarray, tf.Tensor)):
        return None, None
    batch = values["batch_size"] or 32
    if values["steps_per_epoch"]:
        return batch, batch * values["steps_per_epoch"]
    return batch, math.floor(len(first) * (1 - values["validation_split"]))


def _plain_logs(logs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(value, float).tolist() for name, value in logs.items()}
