"""Epochs: blocks of steps, callbacks, validation, checkpoints, and stopping together.

Every worker runs this loop and comes to the same decisions, because it decides by nothing but what
all of them know: the plan, the summed metrics, and votes that are summed with the gradients.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .cluster import Team
from .errors import ModelError, TrainerError
from .input import Pipeline
from .plan import Plan
from .report import Report, epoch_line
from .saving import Checkpoints, Progress
from .step import Steps

STOPPED = 143
"""Exit code of a run that was asked to stop (128 + SIGTERM)."""

_BLOCK_SECONDS = 0.25
_LONGEST_BLOCK = 50
_BATCH_HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
_WRITERS = (keras.callbacks.ModelCheckpoint, keras.callbacks.CSVLogger, keras.callbacks.TensorBoard)


class Stopped(TrainerError):
    """The run was asked to stop, and has saved where it was."""


@dataclass(frozen=True)
class Data:
    """A pipeline of batches and the plan that it follows."""

    pipeline: Pipeline
    plan: Plan


class StopSignal:
    """Remembers SIGTERM: the tasks agree on it between two blocks of steps."""

    def __init__(self) -> None:
        self.received = False
        # TensorFlow has set a handler of its own when it made the strategy; this one replaces it.
        signal.signal(signal.SIGTERM, self._remember)

    def _remember(self, *_: object) -> None:
        self.received = True


class Loop:
    """Trains a compiled model on all workers alike.

    Parameters
    ----------
    model
        A compiled model, built in the scope of ``team.strategy``.
    team
        The tasks.
    training, validation
        The data; validation may be None.
    checkpoints, report, stop
        Where the run saves and tells, and how it is asked to stop.
    progress
        Where the run stands: at step 0, or where a checkpoint left it.
    epochs
        Epochs in all, those done before counted in.
    checkpoint_every
        Steps between checkpoints; 0 for one at the end of each epoch only.
    callbacks
        Keras callbacks. They run on every worker with the same logs; those that only write files
        run on the chief.
    """

    def __init__(
        self,
        model: keras.Model,
        team: Team,
        training: Data,
        validation: Data | None,
        *,
        checkpoints: Checkpoints,
        report: Report,
        stop: StopSignal,
        progress: Progress,
        epochs: int,
        checkpoint_every: int = 0,
        callbacks: list[keras.callbacks.Callback] | None = None,
    ) -> None:
        self._model = model
        self._team = team
        self._training = training
        self._validation = validation
        self._checkpoints = checkpoints
        self._report = report
        self._stop = stop
        self._progress = progress
        self._epochs = epochs
        self._checkpoint_every = checkpoint_every
        plans = [data.plan for data in (training, validation) if data is not None]
        _check_has_rows_for_statistics(model, training.plan)
        self._steps = Steps(model, team.strategy, any(plan.may_lack_rows for plan in plans))
        _let_floats_be_read(model)
        callbacks = [c for c in callbacks or [] if not self._is_superfluous(c)]
        _check_leaves_weights(callbacks)
        own = [c for c in callbacks if team.role.is_chief or not isinstance(c, _WRITERS)]
        self._callbacks = keras.callbacks.CallbackList(
            own,
            add_history=True,
            model=model,
            epochs=epochs,
            steps=progress.steps_per_epoch,
            verbose=0,
        )
        # Asked of all callbacks, those of the chief alone too: the tasks must agree on it.
        self._by_single_steps = any(_has_batch_hook(callback) for callback in callbacks)
        self._block = 1
        self._seconds_per_step = math.inf
        self._validation_batches: Iterator[Any] | None = None

    def restore(self, values: list[np.ndarray] | None) -> None:
        """Take over the values of a checkpoint on every task; only the chief needs to have them.

        Raises
        ------
        ModelError
            If the checkpoint is of another model.
        """
        state, metrics = self._state(), self._steps.metric_variables
        templates = [np.zeros(v.shape, v.dtype) for v in (*state, *metrics)]
        if self._team.role.is_chief:
            _check_same_model(values or [], templates, [v.path for v in (*state, *metrics)])
        agreed = [self._team.from_chief(value) for value in values or templates]
        for variable, value in zip(state, agreed, strict=False):
            variable.assign(value)
        self._steps.restore_metrics([tf.convert_to_tensor(v) for v in agreed[len(state) :]])

    def run(self) -> Progress:
        """Train until the last epoch is done or a callback ends the training.

        Raises
        ------
        Stopped
            If a task was asked to stop; the chief has saved.
        TrainerError
            If the loss is not finite, or a checkpoint cannot be written.
        """
        is_for_any = np.array(self._by_single_steps, np.int64)
        self._by_single_steps = bool(self._team.sum(is_for_any) > 0)
        self._model.stop_training = self._progress.stopped
        self._callbacks.on_train_begin()
        batches = self._batches(self._training, self._progress.step)
        while not self._is_done:
            self._run_epoch(batches)
        # After the last checkpoint: a run that goes on goes on from the weights as they were.
        self._model.optimizer.finalize_variable_values(self._model.trainable_weights)
        self._callbacks.on_train_end(self._progress.history[-1]["logs"])
        self._checkpoints.wait()
        return self._progress

    @property
    def _is_done(self) -> bool:
        history = self._progress.history
        has_record = bool(history) and history[-1]["step"] == self._progress.step
        return self._epoch >= self._epochs or (self._progress.stopped and has_record)

    @property
    def _epoch(self) -> int:
        """Epochs done; one whose steps are done may still want its validation."""
        return len(self._progress.history)

    def _is_superfluous(self, callback: keras.callbacks.Callback) -> bool:
        if not isinstance(callback, keras.callbacks.BackupAndRestore):
            return False
        self._report.say("BackupAndRestore is left out: every run goes on from its checkpoints")
        return True

    def _batches(self, data: Data, first_step: int) -> Iterator[Any]:
        own = self._team.own_replicas
        if self._team.local_replicas == 1:
            return iter(data.pipeline.dataset(own, first_step))
        return iter(
            self._team.strategy.distribute_datasets_from_function(
                lambda _: data.pipeline.dataset(own, first_step)
            )
        )

    def _run_epoch(self, batches: Iterator[Any]) -> None:
        epoch, first_step = self._epoch, self._progress.step
        started = time.perf_counter()
        self._callbacks.on_epoch_begin(epoch)
        if self._train_epoch(batches, epoch):
            self._save(self._steps.metric_sums())
            self._leave()
        seconds = time.perf_counter() - started
        logs = self._logs()
        if self._validation is not None:
            logs |= {f"val_{name}": value for name, value in self._validate().items()}
        self._callbacks.on_epoch_end(epoch, logs)
        must_stop = self._agree_to_stop()
        self._model.reset_metrics()
        self._finish_epoch(epoch, logs, self._examples_between(first_step), seconds)
        if must_stop and not self._is_done:
            self._leave()

    def _train_epoch(self, batches: Iterator[Any], epoch: int) -> bool:
        """Train to the end of the epoch, or until the tasks agree to leave; return if they do."""
        end = (epoch + 1) * self._progress.steps_per_epoch
        while self._progress.step < end and not self._progress.stopped:
            must_stop = self._train_block(batches, self._next_boundary(end), epoch)
            if self._by_single_steps:
                must_stop = self._agree_to_stop() or must_stop
            if must_stop:
                return True
            if self._progress.step < end and self._is_due() and not self._progress.stopped:
                self._save(self._steps.metric_sums())
        return False

    def _agree_to_stop(self) -> bool:
        """Agree whether a callback has ended the training; return whether some task must leave."""
        wanted = [self._model.stop_training, self._stop.received]
        has_ended, must_leave = self._team.sum(np.array(wanted, np.int64)) > 0
        self._model.stop_training = bool(has_ended)
        self._progress = replace(self._progress, stopped=bool(has_ended))
        return bool(must_leave)

    def _next_boundary(self, end: int) -> int:
        step, every = self._progress.step, self._checkpoint_every
        boundary = min(end, step + (1 if self._by_single_steps else self._block))
        return min(boundary, (step // every + 1) * every) if every else boundary

    def _is_due(self) -> bool:
        return bool(self._checkpoint_every) and self._progress.step % self._checkpoint_every == 0

    def _train_block(self, batches: Iterator[Any], boundary: int, epoch: int) -> bool:
        """Train up to ``boundary``; return whether some task was asked to stop."""
        first = self._progress.step
        in_epoch = first - epoch * self._progress.steps_per_epoch
        self._callbacks.on_train_batch_begin(in_epoch)
        started = time.perf_counter()
        votes = tf.constant([float(self._stop.received), self._proposed_block()])
        loss, not_finite, votes = self._steps.train(batches, tf.constant(boundary - first), votes)
        self._check_finite(int(not_finite), first, float(loss))
        self._progress = replace(self._progress, step=boundary)
        self._seconds_per_step = (time.perf_counter() - started) / (boundary - first)
        self._block = max(1, round(float(votes[1])))
        self._report.event("step", step=boundary, epoch=epoch + 1, loss=float(loss))
        last = boundary - 1 - epoch * self._progress.steps_per_epoch
        self._callbacks.on_train_batch_end(last, self._logs() if self._by_single_steps else None)
        return float(votes[0]) > 0

    def _proposed_block(self) -> float:
        """Return how many steps the chief would take at once; the other tasks leave it to him."""
        if not self._team.role.is_chief:
            return 0.0
        steps = min(_LONGEST_BLOCK, 4 * self._block, _BLOCK_SECONDS / self._seconds_per_step)
        return max(1.0, float(int(steps))) / self._team.local_replicas

    def _check_finite(self, offset: int, first: int, loss: float) -> None:
        if offset < 0:
            return
        step = first + offset + 1
        raise TrainerError(
            f"the loss is not finite at step {step} ({loss}): lower --learning-rate, clip the "
            f"gradients (clipnorm) or look for bad values in the data; the last checkpoint is kept"
        )

    def _logs(self) -> dict[str, Any]:
        """Return the metrics: numbers, and lists of the metrics that give more than one."""
        results = self._steps.results().items()
        return {name: np.asarray(value, float).tolist() for name, value in results}

    def _validate(self) -> dict[str, Any]:
        assert self._validation is not None
        counted = self._steps.metric_sums()
        self._model.reset_metrics()
        self._callbacks.on_test_begin()
        if self._validation_batches is None:
            self._validation_batches = self._batches(self._validation, 0)
        left = self._validation.plan.steps
        while left:
            # As long as a block of training, or a little shorter; never one too long to stop.
            block = min(left, self._block)
            self._steps.evaluate(self._validation_batches, tf.constant(block))
            left -= block
            if left and self._agree_to_stop():
                self._callbacks.on_test_end(self._logs())
                self._save(counted)
                self._leave()
        logs = self._logs()
        self._callbacks.on_test_end(logs)
        return logs

    def _examples_between(self, first_step: int) -> int:
        plan = self._training.plan
        return plan.examples_seen(self._progress.step) - plan.examples_seen(first_step)

    def _finish_epoch(
        self, epoch: int, logs: dict[str, Any], examples: int, seconds: float
    ) -> None:
        record = {
            "epoch": epoch + 1,
            "step": self._progress.step,
            "examples": examples,
            # Of an epoch that was only validated here, there is none.
            "examples_per_second": examples / seconds if examples else None,
            "logs": logs,
        }
        self._progress = replace(self._progress, history=[*self._progress.history, record])
        self._report.event("epoch", **record)
        self._report.say(epoch_line(epoch + 1, self._epochs, record))
        self._report.scalars(epoch, logs)
        self._save(self._steps.metric_sums())

    def _state(self) -> list[Any]:
        """Return the variables of model and optimizer, each once, always in the same order."""
        variables = [*self._model.variables, *self._model.optimizer.variables]
        return list({id(variable): variable for variable in variables}.values())

    def _save(self, sums: list[tf.Tensor]) -> None:
        """Save on the chief, with the counts of all tasks' metrics."""
        if self._team.role.is_chief:
            values = [np.asarray(v) for v in (*(s.value for s in self._state()), *sums)]
            self._checkpoints.save(self._progress, values)

    def _leave(self) -> None:
        """Leave together, when the chief has saved."""
        self._checkpoints.wait()
        self._team.meet()
        raise Stopped(f"asked to stop: saved at step {self._progress.step}")


def _has_batch_hook(callback: keras.callbacks.Callback) -> bool:
    if getattr(callback, "save_freq", None) == "epoch":  # Keras's ModelCheckpoint
        return False
    plain = keras.callbacks.Callback
    changed = (getattr(type(callback), hook) is not getattr(plain, hook) for hook in _BATCH_HOOKS)
    return any(changed) or any(hook in vars(callback) for hook in _BATCH_HOOKS)


def _check_has_rows_for_statistics(model: keras.Model, plan: Plan) -> None:
    """Refuse a last step in which a replica without rows would add to all replicas' statistics."""
    layers = model._flatten_layers()  # noqa: SLF001 - nested ones too
    found = (each for each in layers if each.trainable and getattr(each, "synchronized", False))
    layer = next(found, None)
    if layer is not None and plan.may_lack_rows:
        raise ModelError(
            f"the layer {layer.name} is synchronized and needs a row on each of "
            f"{plan.replicas} replicas, but the last step of an epoch has "
            f"{plan.global_rows(plan.steps - 1)}: choose another --global-batch-size"
        )


def _check_leaves_weights(callbacks: list[keras.callbacks.Callback]) -> None:
    if any(getattr(callback, "swap_on_epoch", False) for callback in callbacks):
        raise ModelError(
            "SwapEMAWeights(swap_on_epoch=True) would have checkpoints hold the averages instead "
            "of the weights: leave swap_on_epoch out"
        )


def _let_floats_be_read(model: keras.Model) -> None:
    """Let callbacks write ``float(optimizer.learning_rate)``, as they do without a strategy."""
    for variable in model.optimizer.variables[:1]:
        kind = type(variable.value)
        if not hasattr(kind, "__float__"):
            kind.__float__ = lambda value: float(value.numpy())


def _check_same_model(
    values: list[np.ndarray], templates: list[np.ndarray], paths: list[str]
) -> None:
    """Refuse values that are not those of this model's variables."""
    remedy = "use a new --job-dir, or --no-resume to start anew"
    if len(values) != len(templates):
        raise ModelError(
            f"the checkpoint is of another model: it has {len(values)} variables, this one "
            f"{len(templates)}; {remedy}"
        )
    for value, template, path in zip(values, templates, paths, strict=True):
        if value.shape != template.shape:
            raise ModelError(
                f"the checkpoint is of another model: {path} is {value.shape} there and "
                f"{template.shape} here; {remedy}"
            )
