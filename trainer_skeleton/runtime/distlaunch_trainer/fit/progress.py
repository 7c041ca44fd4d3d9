"""A callback that reports a call of ``fit``, saves it, and stops all tasks at one step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.callbacks import logs_of, set_states, states_of
from distlaunch_trainer.errors import TrainingStopped
from distlaunch_trainer.learning_rate import constant_rates, restore_constant_rates

from .agreement import Agreement, Vote
from .backup import Backup, FitState

if TYPE_CHECKING:
    from .session import Session


class Progress(keras.callbacks.Callback):
    """The last callback of a call of ``fit``; every task has one.

    Parameters
    ----------
    session
        The script's session.
    backup
        Where the call is saved.
    callbacks
        The callbacks of the script, whose state is saved.
    initial_epoch, epochs
        The arguments of ``fit``.
    has_batch_hooks
        Whether a callback of some task may end ``fit`` after a batch.
    """

    def __init__(
        self,
        session: Session,
        backup: Backup,
        callbacks: list[keras.callbacks.Callback],
        initial_epoch: int,
        epochs: int,
        *,
        has_batch_hooks: bool,
    ) -> None:
        super().__init__()
        self._session = session
        self._backup = backup
        self._callbacks = [*callbacks, self]  # this one has a state too
        self._script_callbacks = callbacks
        self._first_epoch = initial_epoch
        self._own_epochs = 0
        self._epochs = epochs
        self._epoch = initial_epoch
        self._epoch_start = session.step
        self._started = time.perf_counter()
        self._seconds: float | None = None
        self._examples: float | None = None
        self._agreement = Agreement(session.cluster, after_each_batch=has_batch_hooks)
        self._wants_end = False
        self._skipped = 0  # batches of the first epoch that an earlier run has trained
        self._rates: dict[str, float] = {}  # before on_epoch_begin of the script's callbacks
        self._metrics: list[np.ndarray] = []  # of all tasks, in an epoch that is not over
        self._seconds_before = 0.0
        self._put_back: Callable[[], None] | None = None

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - the arguments of Keras
        session = self._session
        start = self._state(self._epoch, 0)
        restored = self._backup.restore(self.model, self._callbacks, start)
        if restored:
            self._resume(restored)
        self._rates = constant_rates(self.model)
        session.cluster.barrier()  # from here on all tasks can agree to stop
        session.stop.defer()
        self._report_start()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self._epoch = self._session.epoch = epoch
        self._epoch_start = self._session.step - self._skipped
        self._skipped = 0
        if self._put_back:
            self._put_back()
            self._put_back = None
        self._started = time.perf_counter() - self._seconds_before
        self._seconds_before = 0.0
        self._agreement.restart_clock()
        self._seconds = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # With several steps per execution, Keras counts the last ones of an epoch even if the data
        # has fewer.
        steps = self.params.get("steps") or math.inf
        self._session.step = self._epoch_start + int(min(batch + 1, steps))
        if self.model.stop_training and self._session.cluster.role.num_workers > 1:
            self._wants_end, self.model.stop_training = True, False  # until all tasks agree
        self._count_batch(logs)

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        self._end_training()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        self._count_batch(None)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        session = self._session
        session.rendezvous.meet(f"the end of epoch {epoch + 1} of fit()")
        self._end_training()
        session.average_statistics(self.model)
        results = {name: np.asarray(value, float).tolist() for name, value in (logs or {}).items()}
        record = {
            "epoch": len(session.epochs) + 1,
            "step": session.step,
            "examples": self._examples,
            "examples_per_second": self._examples / self._seconds if self._examples else None,
            "logs": results,
        }
        session.epochs.append(record)
        self._own_epochs += 1
        session.report.record_epoch(record)
        self._wants_end = self._wants_end or self.model.stop_training
        must_stop = self._agree(None)
        self._rates, self._metrics = constant_rates(self.model), []
        self._save(self._state(self._epochs if self.model.stop_training else epoch + 1, 0))
        if must_stop:
            self._leave(f"after epoch {epoch + 1}")

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        # After what other callbacks change in the end, e.g. EarlyStopping.
        self._save(replace(self._state(self._epochs, 0), is_done=True))

    def get_state(self) -> dict[str, Any]:
        """Return what belongs to an epoch that is not over."""
        seconds = time.perf_counter() - self._started
        return {"rates": self._rates, "metrics": self._metrics, "seconds": seconds}

    def set_state(self, state: dict[str, Any]) -> None:
        """Have the epoch begin as it did first, if an earlier run has trained a part of it."""
        self._rates, self._metrics = state["rates"], state["metrics"]
        self._seconds_before = state["seconds"] if self._metrics else 0.0

    def _begin_again(self) -> None:
        """Have `on_epoch_begin` of all callbacks get the learning rates of its first call.

        What they change otherwise is put back: it is in what was restored.
        """
        variables = keras_compat.saved_variables(self.model)
        values = [tf.convert_to_tensor(variable.value).numpy() for variable in variables]
        states = states_of(self._script_callbacks)
        counts = list(zip(self.model.metrics_variables, self._metrics, strict=False))
        if [np.shape(value) for value in self._metrics] != [v.shape for v, _ in counts]:
            self._session.report.warn("the metrics have changed: this epoch's start from scratch")
            counts = []

        def put_back() -> None:
            for variable, value in [*zip(variables, values, strict=True), *counts]:
                variable.assign(value)
            set_states(self._script_callbacks, *states)

        restore_constant_rates(self.model, self._rates)
        self._put_back = put_back

    def _resume(self, restored: FitState) -> None:
        """Continue after the epochs and batches of an earlier run."""
        session = self._session
        self._epoch = min(restored.epoch, self._epochs)
        session.step, session.epochs = restored.step, list(restored.epochs)
        session.resumed_from = restored.step
        self._own_epochs = restored.own_epochs
        self._skipped = restored.batch
        keras_compat.set_initial_epoch(self.model, self._epoch)
        for epoch, record in enumerate(restored.own_records(), self._first_epoch):
            self.model.history.on_epoch_end(epoch, logs_of(record))
        if session.data and restored.position:
            session.data.batches.resume(restored.position, restored.batch)
        if restored.batch:
            self._begin_again()
        if restored.is_done:
            message = f"fit() was done at step {restored.step}: its weights are restored"
        else:
            message = f"resuming after step {restored.step}, in epoch {restored.epoch + 1}"
        session.report.log(message)

    def _report_start(self) -> None:
        session = self._session
        data = session.data
        session.facts = {
            "global_batch": data.global_batch if data else None,
            "steps_per_epoch": self.params.get("steps"),
            "epochs": len(session.epochs) + self._epochs - self._epoch,
            "examples": data.examples if data else None,
            "replicas": session.cluster.replicas,
        }
        known = {name: value for name, value in session.facts.items() if value is not None}
        tasks = session.cluster.role.num_workers
        session.report.event("ready", **known, tasks=tasks, step=session.step)

    def _end_training(self) -> None:
        """Take the time and the examples of an epoch, before its validation."""
        if self._seconds is None:
            self._seconds = time.perf_counter() - self._started
            self._examples = keras_compat.counted_rows(self.model)

    def _count_batch(self, logs: Any) -> None:
        if self._agreement.is_due() and self._agree(logs):
            self._session.average_statistics(self.model)
            is_over = self._seconds is not None  # in the validation of an epoch
            batch = self._session.step - self._epoch_start
            if not is_over:  # sums over all tasks
                variables = self.model.metrics_variables
                self._metrics = [tf.convert_to_tensor(v.value).numpy() for v in variables]
            self._save(self._state(self._epoch + is_over, 0 if is_over else batch))
            self._leave(f"at step {self._session.step}")

    def _state(self, epoch: int, batch: int) -> FitState:
        session = self._session
        position = session.data.batches.position(batch) if session.data else ()
        return FitState(epoch, batch, position, session.step, session.epochs, self._own_epochs)

    def _agree(self, logs: Any) -> bool:
        """Agree with all tasks to end or to stop; return whether to stop.

        Report the mean of the tasks' losses, if there are `logs`.
        """
        session = self._session
        loss = float(logs["loss"]) if logs and "loss" in logs else math.nan
        agreed = self._agreement.reach(Vote(session.stop.received, self._wants_end, loss))
        if agreed.must_end:
            self.model.stop_training = True
        if logs:
            known = {"loss": agreed.loss} if math.isfinite(agreed.loss) else {}
            session.report.event("step", step=session.step, epoch=len(session.epochs) + 1, **known)
        return agreed.must_stop

    def _save(self, state: FitState) -> None:
        self._backup.save(self.model, self._callbacks, state)

    def _leave(self, when: str) -> None:
        """Stop together, after the chief has saved."""
        self._session.cluster.barrier()
        raise TrainingStopped(f"stopped by a signal: saved {when}")
