"""The training loop of the chief of a cluster with parameter servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import keras

from distlaunch_trainer.errors import ModelError, TrainerError
from distlaunch_trainer.input.batches import EndlessReader, Reader
from distlaunch_trainer.input.data_setup import TrainingData
from distlaunch_trainer.loop.loop import Loop
from distlaunch_trainer.loop.loop_options import LoopOptions, StepTools, TaskServices
from distlaunch_trainer.training_state import Progress

from .connection import Servers
from .lost_workers import watch_workers
from .schedule import LOST_TASK
from .server_runner import ServerRunner


class CoordinatorLoop(Loop):
    """The loop of one task, the chief, whose steps are those of workers."""

    def __init__(
        self,
        model: keras.Model,
        servers: Servers,
        services: TaskServices,
        data: TrainingData,
        *,
        options: LoopOptions,
        tools: StepTools,
        progress: Progress,
    ) -> None:
        if tools.callbacks.see_batches:
            raise ModelError(
                "a callback has a hook for batches (on_train_batch_begin or on_train_batch_end, or "
                "an update_freq or save_freq in batches), and steps of parameter servers run at "
                "the same time: use its hooks for epochs"
            )
        super().__init__(model, services, data, options=options, tools=tools, progress=progress)
        self._servers = servers
        self._runner = self._server_runner = ServerRunner(
            model, services, options, tools, state=self._state, watchdog=self._watchdog
        )

    def run(self) -> Progress:
        """Train as `Loop.run`, with the variables as they are now."""
        with self._lost_servers():
            self._server_runner.start(self._servers, self._data)
            with watch_workers(self._servers.workers):
                return super().run()

    def _open_reader(self) -> Reader:
        """Return a reader without batches: the workers read them."""
        steps = self._data.options.steps_per_epoch
        return EndlessReader(None, self._data.training.plan, steps)

    @contextmanager
    def _lost_servers(self) -> Iterator[None]:
        """Name the parameter servers that are gone, if TensorFlow fails for that."""
        try:
            yield
        except LOST_TASK as error:
            names = ", ".join(self._servers.lost()) or "a parameter server"
            raise TrainerError(
                f"{names} is gone, and variables with it: a restart resumes from the last "
                "checkpoint"
            ) from error
