"""The steps of an epoch, in executions of several."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.errors import TrainerError
from distlaunch_trainer.input.batches import Reader
from distlaunch_trainer.input.order.plan import end_of_similar_steps
from distlaunch_trainer.keras_compat.keras_random import unsaved_draws
from distlaunch_trainer.step import random_draws
from distlaunch_trainer.step.step_functions import MAX_SKIPPED, Execution
from distlaunch_trainer.task.step_watchdog import StepWatchdog

from .loop_options import LoopOptions, StepTools, TaskServices
from .run_state import RunState
from .stopping import vote_to_stop

# Stop signals, progress and checkpoints wait for the end of an execution.
_SECONDS_PER_EXECUTION = 0.25
_MAX_STEPS = 50


class AgreedHooks(NamedTuple):
    """What some task's callbacks need, and so all tasks do; see `Callbacks`."""

    see_batches: bool = False
    see_test_batches: bool = False
    take_bad_losses: bool = False
    show_progress: bool = False


class StepsPerExecution:
    """Measures the steps, and proposes how many the next execution should have.

    It is to take a fraction of a second. The number grows by a factor of four at most, up to 50.
    """

    def __init__(self) -> None:
        self.steps = 1  # of an execution, as all tasks have agreed
        self._seconds_per_step = math.inf
        self._last_end = 0.0

    @property
    def is_measured(self) -> bool:
        """Whether an execution has ended."""
        return math.isfinite(self._seconds_per_step)

    def measure(self, started: float, steps: int) -> None:
        """Measure an execution that ends now; it began when the one before had ended.

        It was launched at `started`, by ``time.perf_counter``.
        """
        now = time.perf_counter()
        self._seconds_per_step = (now - max(started, self._last_end)) / steps
        self._last_end = now

    def propose(self) -> float:
        """Return the number of steps that the next execution should have, 1 or more."""
        steps = min(_MAX_STEPS, 4 * self.steps, _SECONDS_PER_EXECUTION / self._seconds_per_step)
        return max(1.0, float(int(steps)))


class Runner(ABC):
    """Trains the steps of an epoch for a loop."""

    def __init__(
        self,
        model: keras.Model,
        services: TaskServices,
        options: LoopOptions,
        tools: StepTools,
        *,
        state: RunState,
        watchdog: StepWatchdog,
    ) -> None:
        self.hooks = AgreedHooks()  # once all tasks have agreed
        self._model = model
        self._cluster = services.cluster
        self._report = services.report
        self._stop = services.stop
        self._options = options
        self._tools = tools
        self._functions = tools.functions
        self._state = state
        self._watchdog = watchdog

    @property
    @abstractmethod
    def steps_per_execution(self) -> int:
        """Steps of an evaluation between agreements to stop."""

    @abstractmethod
    def describe_unfinished(self) -> str:
        """Return which steps this task executes, for the message of an error."""

    @abstractmethod
    def train_epoch(self, reader: Reader, end: int) -> bool:
        """Train to the end of the epoch, or until a task must stop; return whether one must.

        The reader has begun the epoch, which may have no more data before the step `end`.
        """


class _LaunchedSteps(NamedTuple):
    """Training steps whose results are not read yet, from ``first`` up to ``end``.

    They are a part of a ``block``, after which callbacks are called.
    """

    first: int
    end: int
    block: range
    started: float
    results: Execution


class StepRunner(Runner):
    """Trains the steps of an epoch on all tasks together.

    Results are read when the next steps are launched, so that a GPU does not wait for Python.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._launched = self._state.progress.step
        self._steps_per_execution = StepsPerExecution()
        self._reader: Reader
        self._epoch_end = 0

    @property
    def steps_per_execution(self) -> int:
        """Steps that the next execution has, if nothing ends it."""
        return self._steps_per_execution.steps

    def describe_unfinished(self) -> str:
        first = self._state.progress.step + 1
        if self._launched < first:
            return f"the evaluation after step {first - 1}"
        return (
            f"step {first}" if self._launched == first else f"a step of {first} to {self._launched}"
        )

    def train_epoch(self, reader: Reader, end: int) -> bool:
        self._reader, self._epoch_end = reader, end
        step, unread = self._state.progress.step, None
        block = range(step, step)
        while step < end and not (self._state.progress.stopped or reader.has_ended):
            if step == block.stop:
                block = range(step, self._next_boundary(step))
            launched = self._launch(step, block)
            if unread and self._finish(unread):
                return True
            unread, step = launched, launched.end
            if step == end or self._reads_at_once(step):
                if self._finish(unread):
                    return True
                unread = None
                if self._state.progress.step == step:
                    self._write_if_due(step)
        return False

    def _write_if_due(self, step: int) -> None:
        """Write a checkpoint after a step of the epoch."""
        if self._is_checkpoint_due(step) and step < self._epoch_end:
            self._functions.synchronize()
            self._state.take_time()
            self._state.save(self._functions.metric_sums())

    def _next_boundary(self, step: int) -> int:
        """Return the step at which callbacks are called, or a checkpoint is due."""
        every = self._options.checkpoint_every
        # Batch hooks are called as under `fit`: as often as compile() requests.
        requested = self._model.steps_per_execution
        steps = requested if self.hooks.see_batches else self.steps_per_execution
        boundary = min(self._epoch_end, step + steps)
        return min(boundary, (step // every + 1) * every) if every else boundary

    def _is_checkpoint_due(self, step: int) -> bool:
        every = self._options.checkpoint_every
        return bool(every) and step % every == 0

    def _reads_at_once(self, step: int) -> bool:
        """Whether results are read before the steps after ``step`` are launched."""
        is_for_each = self.hooks.see_batches or self._options.single_steps or self._tools.audit
        return bool(is_for_each) or self._is_checkpoint_due(step)

    def _launch(self, first: int, block: range) -> _LaunchedSteps:
        """Train from step ``first``, in one execution, and do not wait for the results."""
        reader, start = self._reader, self._state.progress.epoch_step
        # `fit` trains one step at least.
        has_ended = self.hooks.see_batches and self._model.stop_training and first > start
        signals = [has_ended, self._stop.received]
        if first == block.start and not any(signals):  # with a signal no task trains
            self._state.begin("on_train_batch_begin", first - start)
        # Only the first step shows whether replicas exchange rows of sparse gradients.
        is_first = not self._steps_per_execution.is_measured
        is_single = is_first or self._options.single_steps or self._functions.replicas.gathers_rows
        last = first + 1 if is_single or reader.may_end_early else block.stop
        self._launched = end = end_of_similar_steps(reader.has_empty_replicas, first, last)
        started = time.perf_counter()
        vote = vote_to_stop(self._stop, self._report, self._cluster)
        values = [float(has_ended), float(vote), self._proposed_steps_per_execution()]
        arguments = reader.iterator, tf.constant(end - first), tf.constant(values)
        options = {
            "has_empty_replicas": reader.has_empty_replicas(first),
            "form": reader.form,
            "may_end": reader.may_end_early,
        }
        if not self._state.knows_step:
            self._state.know_step(self._functions.trace(*arguments, **options))
        results = self._functions.train(*arguments, **options)
        return _LaunchedSteps(first, end, block, started, results)

    def _finish(self, launched: _LaunchedSteps) -> bool:
        """Read the results of launched steps; return whether a task must stop."""
        results, first, end = launched.results, launched.first, launched.end
        has_ended, must_stop, proposed, *rows = results.signals.numpy()
        if not int(results.steps):
            if not (has_ended > 0 or must_stop > 0):
                self._reader.is_end(np.array(rows), first)
                if first > launched.block.start:  # fewer steps than compile() requests
                    self._end_block(launched.block)
                else:
                    self._state.end("on_train_batch_begin")
            self._model.stop_training = bool(has_ended)
            self._state.update(stopped=bool(has_ended))
            return bool(must_stop > 0)
        self._functions.keep_logs(results)
        loss = float(results.loss)
        self._watchdog.progress()
        self._check_finite(int(results.not_finite), first, loss)
        examples = self._state.progress.epoch_examples + int(results.rows)
        self._state.update(step=end, epoch_examples=examples)
        if not self._steps_per_execution.is_measured:  # of this process
            self._warn_of_draws(first)
        self._steps_per_execution.measure(launched.started, end - first)
        self._steps_per_execution.steps = max(1, round(float(proposed)))
        if self._tools.audit:
            self._tools.audit.flush(first, end)
            self._cluster.barrier()  # all have reported what a checkpoint will hold
        epoch = self._options.epochs_before + len(self._state.progress.history) + 1
        self._report.steps(end, epoch=epoch, loss=loss, examples=int(results.rows))
        if end == launched.block.stop:
            self._end_block(launched.block)
        return False

    def _warn_of_draws(self, first: int) -> None:
        """Warn of random numbers that a run draws otherwise than one worker, or one not resumed."""
        graph = self._functions.graph
        for note in random_draws.notes(graph, self._cluster.replicas) if graph else ():
            self._report.warn(note)
        if first and graph and (draws := unsaved_draws(graph)):
            self._report.warn(
                f"the model draws by tf.random ({', '.join(draws)}), whose state no checkpoint "
                f"holds: this run draws other numbers than one that was not interrupted; "
                f"keras.random draws the same"
            )

    def _end_block(self, block: range) -> None:
        """Call the hooks at the end of a batch, or of as many as compile() requests."""
        steps = len(block)
        if self.hooks.see_batches and block.stop == self._epoch_end:
            steps = self._model.steps_per_execution  # also of a shorter one, as `fit` counts
        last = block.start - self._state.progress.epoch_step + steps - 1
        if self.hooks.see_batches:
            self._functions.synchronize()  # hooks may read the model, or save it
        needs_logs = self.hooks.see_batches or self.hooks.show_progress
        logs = self._functions.logs() if needs_logs else None
        self._tools.callbacks.on_train_batch_end(last, logs)
        self._state.end("on_train_batch_begin")

    def _proposed_steps_per_execution(self) -> float:
        """Return the steps of the next execution on the chief, 0 on other tasks."""
        if not self._cluster.role.is_chief:
            return 0.0
        return self._steps_per_execution.propose() / self._cluster.local_replicas

    def _check_finite(self, offset: int, first: int, loss: float) -> None:
        if offset < 0 or self.hooks.take_bad_losses:
            return
        step = first + offset + 1
        if isinstance(self._model.optimizer, keras.optimizers.LossScaleOptimizer):
            raise TrainerError(
                f"{MAX_SKIPPED} updates in a row were skipped up to step {step}, because gradients "
                f"were not finite (mixed_float16; loss {loss}): look for bad values in the data, "
                f"lower --learning-rate, or use --precision mixed_bfloat16; the last checkpoint is "
                f"kept"
            )
        raise not_finite(step, loss)


def not_finite(step: int, loss: float) -> TrainerError:
    """Return the error of a step with a loss that is not finite."""
    return TrainerError(
        f"the loss is not finite at step {step} ({loss}): lower --learning-rate, clip the "
        f"gradients (clipnorm) or look for bad values in the data; the last checkpoint is kept"
    )
