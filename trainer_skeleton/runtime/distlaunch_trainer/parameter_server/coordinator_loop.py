"""The training loop of the chief: epochs, callbacks, validation, checkpoints and stopping.

It counts the steps by their results. Before anything reads the model, all
scheduled steps end, and the variables are copied from the parameter servers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import keras
import numpy as np

from distlaunch_trainer.errors import ModelError, TrainerError
from distlaunch_trainer.input.batches import Data
from distlaunch_trainer.input.data_setup import TrainingData
from distlaunch_trainer.loop.callbacks import Callbacks
from distlaunch_trainer.loop.evaluator import Evaluator
from distlaunch_trainer.loop.loop_options import LoopOptions, TaskServices
from distlaunch_trainer.loop.run_state import RunState
from distlaunch_trainer.model.learning_rate import rate_of_last_step
from distlaunch_trainer.saving.checkpoints import Checkpoint
from distlaunch_trainer.step.model_replicas import ModelReplicas
from distlaunch_trainer.step.step_functions import StepFunctions
from distlaunch_trainer.task.step_watchdog import StepWatchdog
from distlaunch_trainer.training_state import Progress

from .connection import PROMISES, Servers
from .lost_workers import LostWorkers
from .schedule import LOST_TASK, Schedule
from .server_variables import ServerVariables
from .worker_data import explained_python, worker_batches
from .worker_step import WorkerStep

_EVALUATION_STEPS = 20  # between looks at the stop signal
_EVENT_SECONDS = 0.05


class CoordinatorLoop:
    """Trains a compiled model on the workers of a cluster with parameter servers.

    Parameters
    ----------
    model
        The chief's model, compiled and built on the chief.
    servers
        The workers and parameter servers.
    services
        The chief as a cluster of its own, and where it saves and reports.
    data
        The data, sharded for one replica, and the options of the run.
    options
        When to end, validate and save.
    callbacks
        Keras callbacks; they run on the chief.
    progress
        How far the run is.

    Raises
    ------
    ModelError
        If the model cannot be trained so, or a callback needs batches.
    """

    timing: dict[str, Any] | None = None  # its steps are not in step

    def __init__(
        self,
        model: keras.Model,
        servers: Servers,
        services: TaskServices,
        data: TrainingData,
        *,
        options: LoopOptions,
        callbacks: Sequence[keras.callbacks.Callback],
        progress: Progress,
    ) -> None:
        self._model = model
        self._servers = servers
        self._chief = chief = services.cluster
        self._report = services.report
        self._services = services
        self._stop = services.stop
        self._data = data
        self._options = options
        self._watchdog = StepWatchdog(chief.role.name, options.step_timeout)
        self.functions = StepFunctions(ModelReplicas(model, chief.strategy))
        self._callbacks = Callbacks(
            list(callbacks),
            model,
            epochs=options.epochs,
            steps=data.options.steps_per_epoch,
            writes=True,
            report=services.report,
        )
        if self._callbacks.see_batches:
            raise ModelError(
                "a callback has a hook for batches (on_train_batch_begin or on_train_batch_end, or "
                "an update_freq or save_freq in batches), and steps of parameter servers run at "
                "the same time: use its hooks for epochs"
            )
        self._state = RunState(
            model,
            self.functions,
            self._callbacks,
            services,
            options=data.options,
            progress=progress,
        )
        self._evaluator = data.validation and Evaluator(
            model, self.functions, chief, data.validation, callbacks=self._callbacks
        )
        self._last_event = 0.0

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Restore a checkpoint into the chief's model.

        Raises
        ------
        ModelError
            If the checkpoint is of another model or optimizer.
        """
        self._state.restore(checkpoint)

    def run(self) -> Progress:
        """Train until the last epoch is done or a callback ends the training.

        Raises
        ------
        TrainingStopped
            If the chief received a stop signal; it has saved.
        TrainerError
            If the loss is not finite, a checkpoint cannot be written, or a server is lost.
        """
        with self._watchdog, self._lost_servers(), explained_python():
            return self._run()

    def _run(self) -> Progress:
        servers, model = self._servers, self._model
        self._variables = ServerVariables(
            model, servers.strategy, len(servers.role.parameter_servers)
        )
        self._step = WorkerStep(model, self._variables, servers.strategy)
        self._report.log(self._variables.describe())
        self._report.log(PROMISES)
        batches = worker_batches(self._data.training, shuffles=self._data.options.shuffle > 0)
        iterators = iter(servers.coordinator.create_per_worker_dataset(batches))
        self._schedule = Schedule(
            servers.coordinator,
            self._step.function,
            iterators,
            len(servers.workers),
            is_server_lost=lambda: bool(servers.lost()),
        )
        before = self._variables.values()
        model.stop_training = self._state.progress.stopped
        self._state.begin_training()
        self._variables.push(before)
        self._watchdog.progress()
        with LostWorkers(servers.workers):
            while not self._is_done:
                self._run_epoch()
        model.optimizer.finalize_variable_values(model.trainable_weights)
        self._callbacks.end(self._state.progress.history[-1])
        self._services.checkpoints.wait()
        return self._state.progress

    @property
    def step(self) -> int:
        """Steps that were executed, of all epochs."""
        return self._state.progress.step

    def describe_unfinished(self) -> str:
        """Return which steps are executed, for the message of an error."""
        return f"a step after {self._state.progress.step}"

    def evaluate(self, data: Data) -> dict[str, Any]:
        """Return the results of the trained model on other data, which the chief evaluates.

        Raises
        ------
        TrainingStopped
            If the chief received a stop signal.
        """
        evaluator = Evaluator(self._model, self.functions, self._chief, data)
        logs = evaluator.evaluate(_EVALUATION_STEPS, lambda: self._stop.received)
        if logs is None:
            self._state.leave()
        return logs

    @property
    def _is_done(self) -> bool:
        progress = self._state.progress
        has_ended = progress.stopped and bool(progress.history)
        return len(progress.history) >= self._options.epochs or has_ended

    def _run_epoch(self) -> None:
        epoch = len(self._state.progress.history)
        self._state.start_clock()
        before = self._variables.values()
        self._state.begin("on_epoch_begin", epoch)
        self._variables.push(before)
        self._train_epoch(epoch)
        self._pull()
        if self._stop.received:
            self._leave()
        logs = self.functions.logs()
        if self._evaluator is not None:
            logs |= {f"val_{name}": value for name, value in self._validate().items()}
        rate = rate_of_last_step(self._model)  # callbacks may set that of the next epoch
        before = self._variables.values()
        self._callbacks.on_epoch_end(epoch, logs)
        self._variables.push(before)
        self._state.update(stopped=bool(self._model.stop_training))
        self._model.reset_metrics()
        self._state.end_epoch(self._options, logs, rate)
        self._watchdog.end_epoch()
        self._save()
        if self._stop.received and not self._is_done:
            self._leave()

    def _train_epoch(self, epoch: int) -> None:
        """Train to the end of the epoch, or until a stop signal."""
        end = (epoch + 1) * self._data.options.steps_per_epoch
        while self._state.progress.step < end and not self._stop.received:
            every = self._options.checkpoint_every
            boundary = min(end, (self._state.progress.step // every + 1) * every) if every else end
            for packed in self._results(boundary):
                self._count(packed, epoch)
            if boundary < end and self._state.progress.step == boundary and not self._stop.received:
                self._pull()
                self._save()

    def _results(self, end: int) -> Iterator[np.ndarray]:
        """Yield the results of the steps up to ``end``, or of those scheduled at a stop signal."""
        for packed in self._schedule.results(self._state.progress.step, end):
            yield packed
            if self._stop.received:
                yield from self._schedule.rest()
                return

    def _count(self, packed: np.ndarray, epoch: int) -> None:
        """Add the result of a step to the metrics."""
        result = self._step.result(packed)
        step = self._state.progress.step + 1
        self._watchdog.progress()
        if not np.isfinite(result.loss) and not self._callbacks.take_bad_losses:
            raise TrainerError(
                f"the loss is not finite at step {step} ({result.loss}): lower --learning-rate, "
                "clip the gradients (clipnorm) or look for bad values in the data; the last "
                "checkpoint is kept"
            )
        for variable, added in zip(self.functions.metric_variables, result.metrics, strict=True):
            variable.assign_add(added)
        examples = self._state.progress.epoch_examples + result.rows
        self._state.update(step=step, epoch_examples=examples)
        is_last = step % self._data.options.steps_per_epoch == 0
        if is_last or time.monotonic() > self._last_event + _EVENT_SECONDS:
            self._last_event = time.monotonic()
            self._report.event("step", step=step, epoch=epoch + 1, loss=result.loss)

    def _pull(self) -> None:
        """Copy the variables of the servers into the chief's model, and take the epoch's time."""
        self._variables.pull(self._state.progress.step)
        self._state.take_time()

    def _validate(self) -> dict[str, Any]:
        assert self._evaluator is not None
        counts = self.functions.metric_sums()
        logs = self._evaluator.evaluate(_EVALUATION_STEPS, self._must_stop)
        if logs is None:
            self._state.save(counts)
            self._state.leave()
        return logs

    def _must_stop(self) -> bool:
        self._watchdog.progress()
        return self._stop.received

    def _save(self) -> None:
        self._state.save(self.functions.metric_sums())

    def _leave(self) -> NoReturn:
        self._save()
        self._state.leave()

    @contextmanager
    def _lost_servers(self) -> Iterator[None]:
        """Name the parameter servers that are gone, if TensorFlow fails for that."""
        try:
            yield
        except LOST_TASK as error:
            names = ", ".join(self._servers.lost()) or "a parameter server"
            raise TrainerError(
                f"{names} is gone, and variables with it: a restart resumes from the last "
                f"checkpoint (step {self._saved_step})"
            ) from error

    @property
    def _saved_step(self) -> int:
        history = self._state.progress.history
        every, step = self._options.checkpoint_every, self._state.progress.step
        last = history[-1]["step"] if history else 0
        return max(last, step // every * every if every else 0)
