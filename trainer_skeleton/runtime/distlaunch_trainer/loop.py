"""The training loop: epochs, callbacks, validation, checkpoints, and stopping together.

Every worker runs this loop and takes the same decisions, because they depend only on values that
all workers have: the plan, the summed metrics, and control signals, which are all-reduced at the
start of an execution (whether to end or to stop, and the number of steps of the next one).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import keras
import numpy as np
import tensorflow as tf

from .audit import Audit
from .callbacks import Callbacks
from .checkpoints import Checkpoint, Checkpoints, Progress, RunOptions
from .cluster import Cluster
from .errors import TrainerError, TrainingStopped
from .evaluator import Evaluator
from .keras_random import unsaved_draws
from .learning_rate import rate_of_last_step
from .measurements import Measurements
from .pipeline import Data, Reader
from .plan import end_of_similar_steps
from .profile import Profile
from .report import Report, epoch_record
from .run_state import RunState
from .step_functions import MAX_SKIPPED, Execution, StepFunctions
from .step_watchdog import StepWatchdog
from .steps_per_execution import StepsPerExecution
from .stop_signal import StopSignal


class _LaunchedSteps(NamedTuple):
    """Training steps whose results are not read yet, from ``first`` up to ``end``.

    They are a part of a ``block``, after which callbacks are called.
    """

    first: int
    end: int
    block: range
    started: float
    results: Execution


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
    functions, callbacks
        Those of the model.
    checkpoints, report, stop
        Where the run saves and reports, and its stop signal.
    options, progress
        The options of the run, and how far it is.
    measurements
        What is measured of the steps.
    epochs
        Epochs in total, with those done before a resume.
    first_epoch
        The number of the first epoch for callbacks.
    epochs_before
        Epochs of the program before the first one, for reports.
    validation_freq
        Epochs after which to validate: every n-th, or those with these numbers, from 1.
    checkpoint_every
        Steps between checkpoints; 0 for one at the end of each epoch only.
    audit
        Records the examples that are trained on, if the data has their numbers.
    step_timeout
        Seconds without a finished step after which this task ends; 0 for none.
    single_steps
        Whether to execute one step at a time and read its result, so that an error names it.
    profile
        Which steps to profile.
    prints_epochs
        Whether to print a line for each epoch.
    """

    def __init__(
        self,
        model: keras.Model,
        cluster: Cluster,
        training: Data,
        validation: Data | None,
        *,
        functions: StepFunctions,
        callbacks: Callbacks,
        checkpoints: Checkpoints,
        report: Report,
        stop: StopSignal,
        options: RunOptions,
        progress: Progress,
        measurements: Measurements,
        epochs: int,
        first_epoch: int = 0,
        epochs_before: int = 0,
        validation_freq: int | Sequence[int] = 1,
        checkpoint_every: int = 0,
        audit: Audit | None = None,
        step_timeout: float = 0.0,
        single_steps: bool = False,
        profile: Profile | None = None,
        prints_epochs: bool = True,
    ) -> None:
        self._model = model
        self._cluster = cluster
        self._training = training
        self._validation = validation
        self._checkpoints = checkpoints
        self._report = report
        self._stop = stop
        self._options = options
        self._progress = progress
        self._epochs = epochs
        self._first_epoch = first_epoch
        self._epochs_before = epochs_before
        self._validation_freq = validation_freq
        self._checkpoint_every = checkpoint_every
        self.functions = functions
        self._measurements = measurements
        self._audit = audit
        self._single_steps = single_steps
        self._prints_epochs = prints_epochs
        self._profile = profile or Profile(None, "", is_chief=False)
        self._launched = progress.step
        self._watchdog = StepWatchdog(cluster.role.name, step_timeout)
        self._callbacks = callbacks
        self._run_state = RunState(
            model, self.functions, callbacks, cluster, report, options=options
        )
        self._sees_batches = self._takes_bad_losses = False
        self._steps_per_execution = StepsPerExecution()
        self._evaluator: Evaluator | None = None
        self._reader: Reader

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Restore a checkpoint on every task; only the chief needs to have it.

        Raises
        ------
        ModelError
            If the checkpoint is of another model or optimizer.
        """
        self._run_state.restore(checkpoint, self._progress)

    def run(self) -> Progress:
        """Train until the last epoch is done or a callback ends the training.

        Raises
        ------
        TrainingStopped
            If a task received a stop signal; the chief has saved.
        TrainerError
            If the loss is not finite, or a checkpoint cannot be written.
        """
        with self._watchdog:
            return self._run()

    def _run(self) -> Progress:
        self._agree_on_hooks()
        self._model.stop_training = self._progress.stopped
        self._run_state.begin_training(self._progress, self._first_epoch)
        # Kept, because TensorFlow takes up to a minute to delete an iterator of several devices.
        self._reader = self._training.reader(
            self._cluster,
            self._progress,
            epochs=self._epochs,
            steps=self._options.steps_per_epoch,
        )
        while not self.is_done:
            self._run_epoch()
        self._profile.close()
        if problem := self._profile.missing(self._progress.step):
            self._report.warn(problem)
        # After the last checkpoint: a resumed run needs the weights before this.
        history = self._progress.history
        if history:
            self._model.optimizer.finalize_variable_values(self._model.trainable_weights)
        self._callbacks.end(history[-1] if history else None)
        self._checkpoints.wait()
        return self._progress

    @property
    def step(self) -> int:
        """Steps that were executed, of all epochs."""
        return self._progress.step

    def describe_unfinished(self) -> str:
        """Return which steps this task executes, for the message of an error."""
        first = self._progress.step + 1
        if self._launched < first:
            return f"the evaluation after step {first - 1}"
        return (
            f"step {first}" if self._launched == first else f"a step of {first} to {self._launched}"
        )

    def evaluate(self, data: Data) -> dict[str, Any]:
        """Return the results of the trained model on other data.

        Raises
        ------
        TrainingStopped
            If a task received a stop signal.
        """
        # Kept like the other iterators.
        self._last_evaluator = Evaluator(self._model, self.functions, self._cluster, data)
        steps = self._steps_per_execution.steps
        logs = self._last_evaluator.evaluate(steps, self._agree_to_stop)
        if logs is None:
            self._leave()
        return logs

    @property
    def is_done(self) -> bool:
        """Whether all epochs are done, or a callback has ended the training."""
        history = self._progress.history
        has_record = bool(history) and history[-1]["step"] == self._progress.step
        return self.epoch >= self._epochs or (self._progress.stopped and has_record)

    @property
    def epoch(self) -> int:
        """Epochs done; the steps of the next one may be done too, but not its validation."""
        return len(self._progress.history)

    def _agree_on_hooks(self) -> None:
        own = self._callbacks
        wanted = [own.see_batches, own.see_test_batches, own.take_bad_losses, own.show_progress]
        agreed = (bool(count) for count in self._cluster.all_reduce_sum(np.array(wanted, np.int64)))
        self._sees_batches, sees_test_batches, self._takes_bad_losses, self._shows_steps = agreed
        if self._validation is not None:
            self._evaluator = Evaluator(
                self._model,
                self.functions,
                self._cluster,
                self._validation,
                callbacks=self._callbacks,
                calls_batch_hooks=sees_test_batches,
            )

    def _run_epoch(self) -> None:
        epoch, progress = self.epoch, self._progress
        number = self._first_epoch + epoch
        self._epoch_start = time.perf_counter() - progress.epoch_seconds
        if progress.step == progress.epoch_step:
            self._model.reset_metrics()
        self._run_state.begin("on_epoch_begin", number)
        self._measurements.start_epoch(progress.step)
        self._reader.begin(progress.epoch_step, progress.step - progress.epoch_step)
        self._progress = replace(progress, position=self._reader.position)
        must_leave = self._train_epoch(epoch)
        self.functions.synchronize()
        if must_leave:
            self._time_epoch()
            self._save(self.functions.metric_sums())
            self._leave()
        self._time_epoch()
        self._reader.end(self._progress.step - self._progress.epoch_step)
        logs = self.functions.logs()
        if self._evaluator is not None and self._validates(number):
            logs |= {f"val_{name}": value for name, value in self._validate().items()}
        rate = rate_of_last_step(self._model)  # callbacks may set that of the next epoch
        self._callbacks.on_epoch_end(number, logs)
        # A task whose callback waits for others, e.g. in predict(), is named.
        self._cluster.rendezvous.meet(f"the end of epoch {number + 1} of fit()")
        must_stop = self._agree_to_stop()
        measured = self._measurements.end_epoch(self.functions.timer)
        self._finish_epoch(epoch, logs, rate, measured)
        if must_stop and not self.is_done:
            self._leave()

    def _validates(self, number: int) -> bool:
        """Return whether to validate after an epoch with this number."""
        epochs = self._validation_freq
        return (number + 1) % epochs == 0 if isinstance(epochs, int) else number + 1 in epochs

    @property
    def _epoch_end(self) -> int:
        """The step after which the epoch ends, as far as that is known."""
        steps = self._reader.steps
        return sys.maxsize if steps is None else self._progress.epoch_step + steps

    def _train_epoch(self, epoch: int) -> bool:
        """Train to the end of the epoch, or until a task must stop; return whether one must.

        Results are read when the next steps are launched, so that a GPU does not wait for Python.
        """
        end = self._epoch_end
        step, unread = self._progress.step, None
        block = range(step, step)
        while step < end and not self._progress.stopped:
            if step == block.stop:
                if unread and self._profile.is_edge(step):
                    if self._finish(unread, epoch):
                        return True
                    unread = None
                block = range(step, self._next_boundary(step, end))
                self._profile.start(step)
            launched = self._launch(step, block)
            if unread and self._finish(unread, epoch):
                return True
            if launched is None:  # the data have ended
                break
            unread, step = launched, launched.end
            if step == end or self._reads_at_once(step):
                if self._finish(unread, epoch):
                    return True
                unread = None
                if self._progress.step == step:
                    self._write_if_due(step, end)
        return False

    def _write_if_due(self, step: int, end: int) -> None:
        """Write scalars and a checkpoint after a step of the epoch that ends with ``end``."""
        if self._measurements.is_due(step):
            self._measurements.write(step, self.functions.logs())
        if self._is_checkpoint_due(step) and step < end:
            self.functions.synchronize()
            self._time_epoch()
            self._save(self.functions.metric_sums())

    def _time_epoch(self) -> None:
        """Take the time that the training of the epoch took so far."""
        seconds = time.perf_counter() - self._epoch_start
        self._progress = replace(self._progress, epoch_seconds=seconds)

    def _agree_to_stop(self) -> bool:
        """Agree whether a callback has ended the training; return whether a task must stop."""
        self._watchdog.progress()  # the tasks have met
        wanted = [self._model.stop_training, self._stop.received]
        has_ended, must_leave = self._cluster.all_reduce_sum(np.array(wanted, np.int64)) > 0
        self._model.stop_training = bool(has_ended)
        self._progress = replace(self._progress, stopped=bool(has_ended))
        return bool(must_leave)

    def _next_boundary(self, step: int, end: int) -> int:
        """Return the step at which callbacks are called, or a checkpoint is due."""
        every = self._checkpoint_every
        # Batch hooks are called as under `fit`: as often as compile() requests.
        requested = self._model.steps_per_execution
        boundary = min(
            end, step + (requested if self._sees_batches else self._steps_per_execution.steps)
        )
        boundary = self._profile.boundary(step, self._measurements.boundary(step, boundary))
        return min(boundary, (step // every + 1) * every) if every else boundary

    def _is_checkpoint_due(self, step: int) -> bool:
        return bool(self._checkpoint_every) and step % self._checkpoint_every == 0

    def _reads_at_once(self, step: int) -> bool:
        """Whether results are read before the steps after ``step`` are launched."""
        is_for_each = self._sees_batches or self._audit is not None or self._single_steps
        return is_for_each or self._is_checkpoint_due(step) or self._measurements.is_due(step)

    def _launch(self, first: int, block: range) -> _LaunchedSteps | None:
        """Train from step ``first``, in one execution, and do not wait for the results.

        None is returned where there are no more data.
        """
        reader, start = self._reader, self._progress.epoch_step
        # `fit` trains one step at least.
        has_ended = self._sees_batches and self._model.stop_training and first > start
        signals = [has_ended, self._stop.received]
        if first == block.start and not any(signals):  # with a signal no task trains
            self._run_state.begin("on_train_batch_begin", first - start)
        # Only the first step shows whether replicas exchange rows of sparse gradients.
        is_first = not self._steps_per_execution.is_measured
        is_single = is_first or self._single_steps or self.functions.gathers_rows
        batches = reader.next_batch() if reader.may_end_early else reader.iterator
        if batches is None:
            self._run_state.end("on_train_batch_begin")
            return None
        last = first + 1 if is_single or reader.may_end_early else block.stop
        self._launched = end = end_of_similar_steps(reader.has_empty_replicas, first, last)
        started = time.perf_counter()
        values = [*map(float, signals), self._proposed_steps_per_execution()]
        with self._profile.trace(first):
            results = self.functions.train(
                batches,
                tf.constant(end - first),
                tf.constant(values),
                has_empty_replicas=reader.has_empty_replicas(first),
                form=reader.form,
            )
        return _LaunchedSteps(first, end, block, started, results)

    def _finish(self, launched: _LaunchedSteps, epoch: int) -> bool:
        """Read the results of launched steps; return whether a task must stop."""
        results, first, end = launched.results, launched.first, launched.end
        has_ended, must_stop, proposed = results.signals.numpy()
        if not int(results.steps):
            self._model.stop_training = bool(has_ended)
            self._progress = replace(self._progress, stopped=bool(has_ended))
            return bool(must_stop)
        self.functions.keep_logs(results)
        self._profile.stop(end)
        loss = float(results.loss)
        self._watchdog.progress()
        self._check_finite(int(results.not_finite), first, loss)
        examples = self._progress.epoch_examples + int(results.rows)
        self._progress = replace(self._progress, step=end, epoch_examples=examples)
        if not self._steps_per_execution.is_measured:  # of this process
            if self.functions.graph and not first:
                self._report.graph(self.functions.graph)
            self._warn_of_unsaved_draws(first)
        self._steps_per_execution.measure(launched.started, end - first)
        self._steps_per_execution.steps = max(1, round(float(proposed)))
        if self._audit:
            self._audit.flush(first, end)
            self._cluster.barrier()  # all have reported what a checkpoint will hold
        self._report.event("step", step=end, epoch=self._epochs_before + epoch + 1, loss=loss)
        if end == launched.block.stop:
            self._end_block(launched.block)
        return False

    def _warn_of_unsaved_draws(self, first: int) -> None:
        """Warn of a resumed run, whose first step is known, that draws other random numbers."""
        if first and self.functions.graph and (draws := unsaved_draws(self.functions.graph)):
            self._report.warn(
                f"the model draws by tf.random ({', '.join(draws)}), whose state no checkpoint "
                f"holds: this run draws other numbers than one that was not interrupted; "
                f"keras.random draws the same"
            )

    def _end_block(self, block: range) -> None:
        """Call the hooks at the end of a batch, or of as many as compile() requests."""
        steps = len(block)
        if self._sees_batches and block.stop == self._epoch_end:
            steps = self._model.steps_per_execution  # also of a shorter one, as `fit` counts
        last = block.start - self._progress.epoch_step + steps - 1
        needs_logs = self._sees_batches or self._shows_steps
        self._callbacks.on_train_batch_end(last, self.functions.logs() if needs_logs else None)
        self._run_state.end("on_train_batch_begin")

    def _proposed_steps_per_execution(self) -> float:
        """Return the steps of the next execution on the chief, 0 on other tasks."""
        if not self._cluster.role.is_chief:
            return 0.0
        return self._steps_per_execution.propose() / self._cluster.local_replicas

    def _check_finite(self, offset: int, first: int, loss: float) -> None:
        if offset < 0 or self._takes_bad_losses:
            return
        step = first + offset + 1
        if isinstance(self._model.optimizer, keras.optimizers.LossScaleOptimizer):
            raise TrainerError(
                f"{MAX_SKIPPED} updates in a row were skipped up to step {step}, because gradients "
                f"were not finite (mixed_float16; loss {loss}): look for bad values in the data, "
                f"lower --learning-rate, or use --precision mixed_bfloat16; the last checkpoint is "
                f"kept"
            )
        raise TrainerError(
            f"the loss is not finite at step {step} ({loss}): lower --learning-rate, clip the "
            f"gradients (clipnorm) or look for bad values in the data; the last checkpoint is kept"
        )

    def _validate(self) -> dict[str, Any]:
        assert self._evaluator is not None
        counts = self.functions.metric_sums()
        logs = self._evaluator.evaluate(self._steps_per_execution.steps, self._agree_to_stop)
        if logs is None:
            self._save(counts)
            self._leave()
        return logs

    @property
    def timing(self) -> dict[str, Any] | None:
        """Where the time of steps went, see `timing_of_steps`."""
        return self._measurements.timing

    def _finish_epoch(
        self,
        epoch: int,
        logs: dict[str, Any],
        rate: float,
        measured: dict[str, Any],
    ) -> None:
        progress = self._progress
        record = epoch_record(
            self._epochs_before + epoch,
            progress.step,
            self._callbacks.epoch_logs,
            examples=progress.epoch_examples,
            seconds=progress.epoch_seconds,
            learning_rate=rate,
            **measured,
        )
        self._run_state.end("on_epoch_begin")
        progress = replace(progress.with_epoch(record), position=self._reader.position)
        self._progress = progress
        self._report.epoch(
            self._epochs_before + self._epochs,
            progress.history,
            logs,
            shows_rate=self._options.rate_options is not None,
            is_printed=self._prints_epochs,
        )
        self._watchdog.end_epoch()
        self._save(self.functions.metric_sums())

    def _save(self, sums: list[tf.Tensor]) -> None:
        """Save on the chief, with the counts of all tasks' metrics."""
        if self._cluster.role.is_chief:
            self._checkpoints.wait()  # memory holds one set of values at a time
            checkpoint = self._run_state.collect(self._progress, sums)
            self._progress = checkpoint.state.progress
            self._checkpoints.save(checkpoint)

    def _leave(self) -> NoReturn:
        """Stop together, when the chief has saved."""
        self._checkpoints.wait()
        self._cluster.barrier()
        raise TrainingStopped(f"stopped by a signal: saved at step {self._progress.step}")
