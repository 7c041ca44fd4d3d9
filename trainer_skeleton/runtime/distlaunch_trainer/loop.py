"""The training loop: epochs, callbacks, validation, checkpoints, and stopping together.

Every worker runs this loop and takes the same decisions, because they depend only on values that
all workers have: the plan, the summed metrics, and control signals, which are all-reduced with the
gradients (whether a task must stop, and the number of steps of the next execution).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf

from .audit import Audit
from .callbacks import Callbacks, templates
from .checkpoints import Checkpoints, Progress
from .cluster import Cluster
from .errors import ModelError, TrainerError, TrainingStopped
from .evaluator import Evaluator, metric_logs
from .pipeline import Data
from .report import Report, epoch_line
from .step import StepFunctions
from .stop_signal import StopSignal

_SECONDS_PER_EXECUTION = 0.25
_MAX_STEPS_PER_EXECUTION = 50


class Loop:
    """Trains a compiled model on all tasks.

    Parameters
    ----------
    model
        A compiled model, built in the scope of ``cluster.strategy``.
    cluster
        The tasks.
    training, validation
        The data; validation may be None.
    checkpoints, report, stop
        Where the run saves and reports, and its stop signal.
    progress
        The progress of the run: step 0, or that of a checkpoint.
    epochs
        Epochs in total, with those done before a resume.
    checkpoint_every
        Steps between checkpoints; 0 for one at the end of each epoch only.
    callbacks
        Keras callbacks.
    sync_batch_norm
        Whether all batch normalizations take their statistics from all replicas.
    audit
        Records the examples that are trained on, if the data has their numbers.
    """

    def __init__(
        self,
        model: keras.Model,
        cluster: Cluster,
        training: Data,
        validation: Data | None,
        *,
        checkpoints: Checkpoints,
        report: Report,
        stop: StopSignal,
        progress: Progress,
        epochs: int,
        checkpoint_every: int = 0,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        sync_batch_norm: bool = False,
        audit: Audit | None = None,
    ) -> None:
        self._model = model
        self._cluster = cluster
        self._training = training
        self._validation = validation
        self._checkpoints = checkpoints
        self._report = report
        self._stop = stop
        self._progress = progress
        self._epochs = epochs
        self._checkpoint_every = checkpoint_every
        self._steps = StepFunctions(
            model,
            cluster.strategy,
            has_empty_replicas=training.plan.may_lack_rows,
            synchronize=sync_batch_norm,
            record_examples=audit.see if audit else None,
        )
        self._audit = audit
        self._callbacks = Callbacks(
            list(callbacks),
            model,
            epochs=epochs,
            steps=progress.steps_per_epoch,
            is_chief=cluster.role.is_chief,
            report=report,
        )
        self._callbacks.state()  # warns before the first checkpoint is due
        self._callback_arrays: list[np.ndarray] = []
        self._sees_batches = self._takes_bad_losses = False
        self._steps_per_execution = 1
        self._seconds_per_step = math.inf
        self._rows_of_epoch = 0
        self._evaluator: Evaluator | None = None

    def restore(self, values: list[np.ndarray] | None) -> None:
        """Broadcast the values of a checkpoint; only the chief needs to have them.

        Raises
        ------
        ModelError
            If the checkpoint is of another model.
        """
        state, metrics = self._state(), self._steps.metric_variables
        variables = [*state, *metrics]
        of_model = [np.zeros(v.shape, v.dtype) for v in variables]
        of_callbacks = templates(self._progress.callbacks)
        if self._cluster.role.is_chief:
            own = len(values or []) - len(of_callbacks)
            _check_same_model((values or [])[:own], of_model, [v.path for v in variables])
        expected = [*of_model, *of_callbacks]
        agreed = [self._cluster.broadcast(value) for value in values or expected]
        for variable, value in zip(state, agreed, strict=False):
            variable.assign(value)
        counted = agreed[len(state) : len(variables)]
        self._steps.restore_metrics([tf.convert_to_tensor(v) for v in counted])
        self._callback_arrays = agreed[len(variables) :]

    def run(self) -> Progress:
        """Train until the last epoch is done or a callback ends the training.

        Raises
        ------
        TrainingStopped
            If a task received a stop signal; the chief has saved.
        TrainerError
            If the loss is not finite, or a checkpoint cannot be written.
        """
        self._agree_on_hooks()
        self._model.stop_training = self._progress.stopped
        if self._progress.step:
            progress = self._progress
            self._callbacks.resume(progress.history, progress.callbacks, self._callback_arrays)
            self._callback_arrays = []
        else:
            self._callbacks.on_train_begin()
        last_step = self._epochs * self._progress.steps_per_epoch
        batches = self._training.pipeline.batches(self._cluster, self._progress.step, last_step)
        while not self._is_done:
            self._run_epoch(batches)
        # After the last checkpoint: a resumed run needs the weights before this.
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
        """Epochs done; the steps of the next one may be done too, but not its validation."""
        return len(self._progress.history)

    def _agree_on_hooks(self) -> None:
        own = self._callbacks
        wanted = [own.see_batches, own.see_test_batches, own.take_bad_losses]
        agreed = (bool(count) for count in self._cluster.all_reduce_sum(np.array(wanted, np.int64)))
        self._sees_batches, sees_test_batches, self._takes_bad_losses = agreed
        if self._validation is not None:
            self._evaluator = Evaluator(
                self._model,
                self._steps,
                self._cluster,
                self._validation,
                callbacks=self._callbacks,
                calls_batch_hooks=sees_test_batches,
            )

    def _run_epoch(self, batches: Iterator[Any]) -> None:
        epoch = self._epoch
        self._rows_of_epoch = 0
        started = time.perf_counter()
        self._callbacks.on_epoch_begin(epoch)
        must_leave = self._train_epoch(batches, epoch)
        self._steps.average_statistics()
        if must_leave:
            self._save(self._steps.metric_sums())
            self._leave()
        seconds = time.perf_counter() - started
        logs = metric_logs(self._steps)
        if self._evaluator is not None:
            logs |= {f"val_{name}": value for name, value in self._validate().items()}
        self._callbacks.on_epoch_end(epoch, logs)
        must_stop = self._agree_to_stop()
        self._model.reset_metrics()
        self._finish_epoch(epoch, logs, self._rows_of_epoch, seconds)
        if must_stop and not self._is_done:
            self._leave()

    def _train_epoch(self, batches: Iterator[Any], epoch: int) -> bool:
        """Train to the end of the epoch, or until a task must stop; return whether one must."""
        end = (epoch + 1) * self._progress.steps_per_epoch
        while self._progress.step < end and not self._progress.stopped:
            must_stop = self._train_block(batches, self._next_boundary(end), epoch)
            if self._sees_batches:
                must_stop = self._agree_to_stop() or must_stop
            if must_stop:
                return True
            is_in_epoch = self._progress.step < end and not self._progress.stopped
            if is_in_epoch and self._is_checkpoint_due():
                self._steps.average_statistics()
                self._save(self._steps.metric_sums())
        return False

    def _agree_to_stop(self) -> bool:
        """Agree whether a callback has ended the training; return whether a task must stop."""
        wanted = [self._model.stop_training, self._stop.received]
        has_ended, must_leave = self._cluster.all_reduce_sum(np.array(wanted, np.int64)) > 0
        self._model.stop_training = bool(has_ended)
        self._progress = replace(self._progress, stopped=bool(has_ended))
        return bool(must_leave)

    def _next_boundary(self, end: int) -> int:
        step, every = self._progress.step, self._checkpoint_every
        boundary = min(end, step + (1 if self._sees_batches else self._steps_per_execution))
        return min(boundary, (step // every + 1) * every) if every else boundary

    def _is_checkpoint_due(self) -> bool:
        return bool(self._checkpoint_every) and self._progress.step % self._checkpoint_every == 0

    def _train_block(self, batches: Iterator[Any], boundary: int, epoch: int) -> bool:
        """Train up to ``boundary``; return whether some task received a stop signal."""
        first = self._progress.step
        in_epoch = first - epoch * self._progress.steps_per_epoch
        self._callbacks.on_train_batch_begin(in_epoch)
        started = time.perf_counter()
        steps = tf.constant(boundary - first)
        loss, not_finite, signals, rows = self._steps.train(batches, steps, self._control_signals())
        self._rows_of_epoch += int(rows)
        self._check_finite(int(not_finite), first, float(loss))
        self._progress = replace(self._progress, step=boundary)
        self._seconds_per_step = (time.perf_counter() - started) / (boundary - first)
        self._steps_per_execution = max(1, round(float(signals[1])))
        if self._audit:
            self._audit.report(first, boundary)
            self._cluster.barrier()  # all have reported what a checkpoint will hold
        self._report.event("step", step=boundary, epoch=epoch + 1, loss=float(loss))
        last = boundary - 1 - epoch * self._progress.steps_per_epoch
        self._callbacks.on_train_batch_end(
            last, metric_logs(self._steps) if self._sees_batches else None
        )
        return float(signals[0]) > 0

    def _control_signals(self) -> tf.Tensor:
        """Return whether this task must stop, and the steps of the next execution."""
        return tf.constant([float(self._stop.received), self._proposed_steps_per_execution()])

    def _proposed_steps_per_execution(self) -> float:
        """Return the steps of the next execution on the chief, 0 on other tasks."""
        if not self._cluster.role.is_chief:
            return 0.0
        steps = min(
            _MAX_STEPS_PER_EXECUTION,
            4 * self._steps_per_execution,
            _SECONDS_PER_EXECUTION / self._seconds_per_step,
        )
        return max(1.0, float(int(steps))) / self._cluster.local_replicas

    def _check_finite(self, offset: int, first: int, loss: float) -> None:
        if offset < 0 or self._takes_bad_losses or self._scales_loss:
            return
        step = first + offset + 1
        raise TrainerError(
            f"the loss is not finite at step {step} ({loss}): lower --learning-rate, clip the "
            f"gradients (clipnorm) or look for bad values in the data; the last checkpoint is kept"
        )

    @property
    def _scales_loss(self) -> bool:
        """Whether the optimizer skips steps that overflow (mixed_float16)."""
        return isinstance(self._model.optimizer, keras.optimizers.LossScaleOptimizer)

    def _validate(self) -> dict[str, Any]:
        assert self._evaluator is not None
        counts = self._steps.metric_sums()
        logs = self._evaluator.evaluate(self._steps_per_execution, self._agree_to_stop)
        if logs is None:
            self._save(counts)
            self._leave()
        return logs

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
        self._report.log(epoch_line(epoch + 1, self._epochs, record))
        self._report.scalars(epoch, logs)
        self._save(self._steps.metric_sums())

    def _state(self) -> list[Any]:
        """Return the variables of model and optimizer, each once, always in the same order."""
        variables = [*self._model.variables, *self._model.optimizer.variables]
        return list({id(variable): variable for variable in variables}.values())

    def _save(self, sums: list[tf.Tensor]) -> None:
        """Save on the chief, with the counts of all tasks' metrics."""
        if self._cluster.role.is_chief:
            self._checkpoints.wait()  # memory holds one set of values at a time
            states, arrays = self._callbacks.state()
            self._progress = replace(self._progress, callbacks=states)
            tensors = (*(variable.value for variable in self._state()), *sums)
            # numpy's own asarray takes twice as long for a distributed variable.
            values = [tf.convert_to_tensor(tensor).numpy() for tensor in tensors]
            self._checkpoints.save(self._progress, [*values, *arrays])

    def _leave(self) -> NoReturn:
        """Stop together, when the chief has saved."""
        self._checkpoints.wait()
        self._cluster.barrier()
        raise TrainingStopped(f"stopped by a signal: saved at step {self._progress.step}")


def _check_same_model(
    values: list[np.ndarray], templates: list[np.ndarray], paths: list[str]
) -> None:
    """Refuse values that are not those of this model's variables."""
    remedy = "use a new --job-dir, or --no-resume to start from scratch"
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
