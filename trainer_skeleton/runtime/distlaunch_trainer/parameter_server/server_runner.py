"""The steps of an epoch, which the chief schedules over the workers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np

from distlaunch_trainer.input.batches import Reader
from distlaunch_trainer.input.data_setup import TrainingData
from distlaunch_trainer.loop.step_runner import Runner, not_finite

from .connection import PROMISES, Servers
from .schedule import Schedule
from .server_variables import ServerVariables
from .worker_data import worker_batches
from .worker_step import WorkerStep

# Workers may end hundreds of steps a second, and each event is a write to a file.
_EVENT_SECONDS = 0.05


class ServerRunner(Runner):
    """Trains the steps of an epoch on the workers of a cluster with parameter servers.

    It counts the steps by their results. Before anything reads the model, all scheduled steps end,
    and the variables are copied from the parameter servers.
    """

    steps_per_execution = 20  # of an evaluation, between looks at the stop signal

    def start(self, servers: Servers, data: TrainingData) -> None:
        """Copy the variables to the servers, and have the workers open the data."""
        self._last_event = 0.0
        self._variables = ServerVariables(
            self._model, servers.strategy, len(servers.role.parameter_servers)
        )
        self._step = WorkerStep(self._model, self._variables, servers.strategy)
        self._report.log(self._variables.describe())
        self._report.log(PROMISES)
        batches = worker_batches(data.training, shuffles=data.options.shuffle > 0)
        self._schedule = Schedule(
            servers.coordinator,
            self._step.function,
            iter(servers.coordinator.create_per_worker_dataset(batches)),
            len(servers.workers),
            is_server_lost=lambda: bool(servers.lost()),
        )
        self._on_servers = self._variables.values()

    def describe_unfinished(self) -> str:
        return f"a step after {self._state.progress.step}"

    def train_epoch(self, reader: Reader, end: int) -> bool:  # noqa: ARG002 - the workers read
        self._variables.push(self._on_servers)  # what callbacks have changed
        self._watchdog.progress()
        every = self._options.checkpoint_every
        while (step := self._state.progress.step) < end and not self._stop.received:
            boundary = min(end, (step // every + 1) * every) if every else end
            for packed in self._results(step, boundary):
                self._count(packed, end)
            if boundary < end and self._state.progress.step == boundary and not self._stop.received:
                self._variables.pull(boundary)
                self._state.take_time()
                self._state.save(self._functions.metric_sums())
        self._variables.pull(self._state.progress.step)
        self._on_servers = self._variables.values()
        return self._stop.received

    def _results(self, first: int, end: int) -> Iterator[np.ndarray]:
        """Yield the results of the steps up to ``end``, or of those scheduled at a stop signal."""
        for packed in self._schedule.results(first, end):
            yield packed
            if self._stop.received:
                yield from self._schedule.rest()
                return

    def _count(self, packed: np.ndarray, end: int) -> None:
        """Add the result of a step to the metrics."""
        result = self._step.result(packed)
        progress = self._state.progress
        step = progress.step + 1
        self._watchdog.progress()
        if not math.isfinite(result.loss) and not self.hooks.take_bad_losses:
            raise not_finite(step, result.loss)
        variables = self._functions.replicas.metrics.variables
        for variable, added in zip(variables, result.metrics, strict=True):
            variable.assign_add(added)
        self._state.update(step=step, epoch_examples=progress.epoch_examples + result.rows)
        epoch = self._options.epochs_before + len(progress.history) + 1
        self._report.figures.progress(step, epoch, result.rows)
        if step == end or time.monotonic() > self._last_event + _EVENT_SECONDS:
            self._last_event = time.monotonic()
            self._report.event("step", step=step, epoch=epoch, loss=result.loss)
