"""The training loop: epochs, callbacks, validation, checkpoints, and stopping together.

Every worker runs this loop and takes the same decisions, because they depend only on values that
all workers have: the plan, the summed metrics, and control signals, which are all-reduced at the
start of an execution (whether to end or to stop, and the number of steps of the next one).
"""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np

from distlaunch_trainer.input.batches import Data, Reader
from distlaunch_trainer.input.data_setup import TrainingData
from distlaunch_trainer.model.learning_rate import rates_of_last_step
from distlaunch_trainer.saving.checkpoints import Checkpoint
from distlaunch_trainer.task.step_watchdog import StepWatchdog
from distlaunch_trainer.training_state import Progress

from .evaluator import Evaluator
from .loop_options import LoopOptions, StepTools, TaskServices
from .measurements import Measurements
from .run_state import RunState
from .step_runner import AgreedHooks, Runner, StepRunner
from .stopping import vote_to_stop


class Loop:
    """Trains a compiled model, built in the scope of the cluster's strategy, on all tasks."""

    def __init__(
        self,
        model: keras.Model,
        services: TaskServices,
        data: TrainingData,
        *,
        options: LoopOptions,
        tools: StepTools,
        progress: Progress,
    ) -> None:
        self.functions = tools.functions
        self._model = model
        self._cluster = services.cluster
        self._services = services
        self._data = data
        self._options = options
        self._tools = tools
        self._watchdog = StepWatchdog(services.cluster.role.name, options.step_timeout)
        self._state = RunState(
            model,
            tools.functions,
            tools.callbacks,
            services,
            options=data.options,
            progress=progress,
        )
        self._runner: Runner = StepRunner(
            model, services, options, tools, state=self._state, watchdog=self._watchdog
        )
        self._measurements = Measurements(services.cluster)
        self._evaluator: Evaluator | None = None
        self._reader: Reader

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Restore a checkpoint on every task; only the chief needs to have it."""
        self._state.restore(checkpoint)

    def run(self) -> Progress:
        """Train until the last epoch is done or a callback ends the training.

        After a stop signal, or of idle GPUs, it raises `TrainingStopped`; the chief has saved then.
        """
        timer = self.functions.timer
        with self._watchdog, self._services.report.figures.training(timer and timer.shares_since):
            return self._run()

    def _run(self) -> Progress:
        self._agree_on_hooks()
        self._model.stop_training = self._state.progress.stopped
        self._state.begin_training(self._options.first_epoch)
        # Kept, because TensorFlow takes up to a minute to delete an iterator of several devices.
        self._reader = self._open_reader()
        while not self.is_done:
            self._run_epoch()
        # After the last checkpoint: a resumed run needs the weights before this.
        history = self._state.progress.history
        if history:
            self._model.optimizer.finalize_variable_values(self._model.trainable_weights)
        self._tools.callbacks.end(history[-1] if history else None)
        self._services.checkpoints.wait()
        return self._state.progress

    @property
    def step(self) -> int:
        """Steps that were executed, of all epochs."""
        return self._state.progress.step

    def describe_unfinished(self) -> str:
        """Return which steps this task executes, for the message of an error."""
        return self._runner.describe_unfinished()

    def evaluate(self, data: Data) -> dict[str, Any]:
        """Return the results of the trained model on other data; a stop signal ends the run."""
        # Kept like the other iterators.
        self._last_evaluator = Evaluator(self._model, self.functions, self._cluster, data)
        logs = self._last_evaluator.evaluate(self._runner.steps_per_execution, self._agree_to_stop)
        if logs is None:
            self._state.leave()
        return logs

    @property
    def is_done(self) -> bool:
        """Whether all epochs are done, or a callback has ended the training."""
        history = self._state.progress.history
        has_record = bool(history) and history[-1]["step"] == self.step
        has_ended = self._state.progress.stopped and has_record
        return self.epoch >= self._options.epochs or has_ended

    @property
    def epoch(self) -> int:
        """Epochs done; the steps of the next one may be done too, but not its validation."""
        return len(self._state.progress.history)

    @property
    def timing(self) -> dict[str, Any] | None:
        """Where the time of steps went, see `Measurements`."""
        return self._measurements.timing

    def _agree_on_hooks(self) -> None:
        own = self._tools.callbacks
        rows = self._cluster.all_gather(np.array(self._data.options.global_batch, np.int64))
        self.functions.replicas.global_batch = int(rows.min())
        wanted = [own.see_batches, own.see_test_batches, own.take_bad_losses, own.show_progress]
        agreed = self._cluster.all_reduce_sum(np.array(wanted, np.int64)) > 0
        self._runner.hooks = hooks = AgreedHooks(*map(bool, agreed))
        if self._data.validation is not None:
            self._evaluator = Evaluator(
                self._model,
                self.functions,
                self._cluster,
                self._data.validation,
                callbacks=own,
                calls_batch_hooks=hooks.see_test_batches,
            )

    def _open_reader(self) -> Reader:
        """Return a reader of this task's training batches."""
        return self._data.training.reader(
            self._cluster,
            self._state.progress,
            epochs=self._options.epochs,
            steps=self._data.options.steps_per_epoch,
        )

    def _run_epoch(self) -> None:
        number = self._options.first_epoch + self.epoch
        must_leave = self._train_epoch(number)
        self.functions.synchronize()
        self._state.take_time()
        if must_leave:
            self._state.save(self.functions.metric_sums(), leaves=True)
            self._state.leave()
        self._reader.end(self.step - self._state.progress.epoch_step)
        logs = self.functions.logs()
        if self._evaluator is not None and self._options.validates_after(number):
            logs |= {f"val_{name}": value for name, value in self._validate().items()}
        rates = rates_of_last_step(self._model)  # callbacks may set that of the next epoch
        self._tools.callbacks.on_epoch_end(number, logs)
        # A task whose callback waits for others, e.g. in evaluate(), is named.
        self._cluster.rendezvous.meet(f"the end of epoch {number + 1} of fit()")
        must_stop = self._agree_to_stop()
        timing = self._measurements.end_epoch(self.functions.timer)
        self._state.update(position=self._reader.position)
        self._state.end_epoch(self._options, logs, rates, timing)
        self._watchdog.end_epoch()
        self._state.save(self.functions.metric_sums())
        if must_stop and not self.is_done:
            self._state.leave()

    def _train_epoch(self, number: int) -> bool:
        """Train the steps of an epoch, or the rest of them; return whether a task must stop."""
        progress, reader = self._state.progress, self._reader
        self._state.start_clock()
        if progress.step == progress.epoch_step:
            self._model.reset_metrics()
        self._state.begin("on_epoch_begin", number)
        reader.begin(progress.epoch_step, progress.step - progress.epoch_step)
        self._state.update(position=reader.position)
        end = sys.maxsize if reader.steps is None else progress.epoch_step + reader.steps
        return self._runner.train_epoch(reader, end)

    def _agree_to_stop(self) -> bool:
        """Agree whether a callback has ended the training; return whether a task must stop."""
        self._watchdog.progress()  # the tasks have met
        services = self._services
        vote = vote_to_stop(services.stop, services.report, self._cluster)
        wanted = [self._model.stop_training, vote]
        has_ended, must_leave = self._cluster.all_reduce_sum(np.array(wanted, np.int64)) > 0
        self._model.stop_training = bool(has_ended)
        self._state.update(stopped=bool(has_ended))
        return bool(must_leave)

    def _validate(self) -> dict[str, Any]:
        assert self._evaluator is not None
        counts = self.functions.metric_sums()
        logs = self._evaluator.evaluate(self._runner.steps_per_execution, self._agree_to_stop)
        if logs is None:
            self._state.save(counts, leaves=True)
            self._state.leave()
        return logs
