"""How far a run is, and all that a checkpoint holds of it.

That is its variables, metrics, random numbers and callbacks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count, takewhile
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.errors import IdleStopped, TrainingStopped
from distlaunch_trainer.keras_compat import keras_random
from distlaunch_trainer.model.learning_rate import constant_rates, restore_constant_rates
from distlaunch_trainer.model.model_state import ModelState
from distlaunch_trainer.model.other_variables import PREFIX, OtherVariables, saved_others
from distlaunch_trainer.model.variable_names import stable_names, unique_names
from distlaunch_trainer.report.report import epoch_record
from distlaunch_trainer.saving.checkpoints import Checkpoint
from distlaunch_trainer.step.step_functions import StepFunctions
from distlaunch_trainer.training_state import Progress, RunOptions, TrainingState

from .callbacks import Callbacks
from .loop_options import LoopOptions, TaskServices
from .replica_comparison import ReplicaComparison


class RunState:
    """Owns the progress of a run, saves its state, and restores it on all tasks.

    The model's optimizers have created their variables.
    """

    def __init__(
        self,
        model: keras.Model,
        functions: StepFunctions,
        callbacks: Callbacks,
        services: TaskServices,
        *,
        options: RunOptions,
        progress: Progress,
    ) -> None:
        self.progress = progress
        self._options = options
        self._services = services
        self._model_state = ModelState(model, services.cluster.strategy)
        known = [*self._model_state.variables.values(), *functions.replicas.metrics.variables]
        self._others = OtherVariables(model, services.cluster, known)
        self.knows_step = False  # what it assigns
        # Of a checkpoint: the names of other variables, and values that have no variable yet.
        self._saved_others: set[str] | None = None
        self._unassigned: dict[str, np.ndarray] = {}
        self._functions = functions
        self._comparison = ReplicaComparison(model, self._model_state, services, functions)
        self._callbacks = callbacks
        self._model = model
        self._clock = 0.0
        self._arrays: list[np.ndarray] = []  # of the callbacks' restored state
        self._begun: dict[str, dict[str, float]] = {}
        self._repeated: dict[str, dict[str, float]] = {}
        callbacks.state()  # warns before the first checkpoint is due

    def update(self, **changes: Any) -> None:
        """Change some attributes of the progress."""
        self.progress = replace(self.progress, **changes)

    def start_clock(self) -> None:
        """Take the time of an epoch from here, or from where its training was interrupted."""
        self._clock = time.perf_counter() - self.progress.epoch_seconds

    def take_time(self) -> None:
        """Take the time that the training of the epoch took so far."""
        self.update(epoch_seconds=time.perf_counter() - self._clock)

    def end_epoch(
        self,
        options: LoopOptions,
        logs: dict[str, Any],
        rates: dict[str, float],
        timing: dict[str, Any] | None,
    ) -> None:
        """Add the record of an epoch that is done, and report it.

        `logs` are for TensorBoard; the record has what callbacks made of them.
        """
        progress = self.progress
        record = epoch_record(
            options.epochs_before + len(progress.history),
            progress.step,
            self._callbacks.epoch_logs,
            examples=progress.epoch_examples,
            seconds=progress.epoch_seconds,
            rates=rates,
            timing=timing,
        )
        self.end("on_epoch_begin")
        history = [*progress.history, record]
        self.update(history=history, epoch_step=progress.step, epoch_examples=0, epoch_seconds=0.0)
        self._services.report.epoch(
            options.epochs_before + options.epochs,
            history,
            logs,
            shows_rate=bool(self._options.rate_scale or self._options.warmup_epochs),
            is_printed=options.prints_epochs,
        )

    def save(self, metric_sums: list[tf.Tensor], *, leaves: bool = False) -> None:
        """Save on the chief, with the metric variables summed over the replicas.

        A collective, in which the replicas are compared, unless the run `leaves`: tasks without the
        signal have called one hook more, which may have set the learning rate.
        """
        if not leaves:
            self._comparison.check(self.progress.step)
        others = self._unassigned | self._others.values()
        if self._services.cluster.role.is_chief:
            self._services.checkpoints.wait()  # memory holds one set of values at a time
            self._services.checkpoints.save(self._collect(metric_sums, others))

    def know_step(self, graph: tf.Graph | None) -> None:
        """Take note of what a step assigns, before it runs; restore what a checkpoint has of it."""
        self.knows_step = True
        warn = self._services.report.warn
        self._others.exclude(_generators().values())
        unsaved = self._others.add_written(graph) if graph is not None else []
        if unsaved:
            warn(
                f"a step assigns {', '.join(unsaved)}, which no checkpoint can hold: a run that "
                "resumes starts with the first value; keep a number in its place"
            )
        self._unassigned = self._others.assign(self._unassigned)
        saved = self._saved_others
        new = self._others.names - saved if saved is not None and self.progress.step else ()
        if differing := sorted({*new, *self._unassigned}):
            warn(
                f"the checkpoint or this model alone has these variables, which a step assigns or "
                f"a layer has: {', '.join(differing)}; the new ones start with their first values"
            )

    def leave(self) -> NoReturn:
        """Stop together, when the chief has saved."""
        services = self._services
        services.checkpoints.wait()
        saved = f"saved at step {self.progress.step}"
        if services.cluster.all_reduce_sum(np.array([services.stop.received], np.int64)).any():
            raise TrainingStopped(f"stopped by a signal: {saved}")
        raise IdleStopped(f"stopped: {services.report.figures.limit} (stop_if): {saved}")

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Restore a checkpoint on every task; it is None on other tasks than the chief."""
        if checkpoint is not None:
            self._model_state.check_same(checkpoint.model)
        own = checkpoint.values if checkpoint is not None else {}
        values = self._services.cluster.broadcast_named(own)
        self._model_state.assign([values[name] for name in self._model_state.variables])
        others = saved_others(values)
        self._saved_others, self._unassigned = set(others), self._others.assign(others)
        generators, metrics = _generators(), self._metrics_by_name
        if _has_all(values, generators):
            for name, variable in generators.items():
                variable.assign(values[name])
        if _has_all(values, metrics):
            self._functions.replicas.metrics.restore(
                [tf.convert_to_tensor(values[name]) for name in metrics]
            )
        else:
            self._services.report.warn("the metrics have changed: this epoch's start from scratch")
        names = takewhile(values.__contains__, map(_callback_name, count()))
        self._arrays = [values[name] for name in names]

    def begin_training(self, first_epoch: int) -> None:
        """Have the callbacks begin the training, or resume it.

        `first_epoch` is the number that they get of the first epoch.
        """
        progress = self.progress
        if not progress.begun:  # a run from scratch
            self.begin("on_train_begin")
            return
        self._repeated = {"on_train_begin": {}, **progress.begun}
        arrays, self._arrays = self._arrays, []

        def resume() -> None:
            self._callbacks.resume(progress.history, progress.callbacks, arrays, first_epoch)

        self._begin("on_train_begin", resume)

    def begin(self, hook: str, *arguments: int) -> None:
        """Call a hook of the callbacks, such as ``on_epoch_begin``.

        If an earlier process has called it, it gets the learning rates of then, for what callbacks
        keep in attributes, and changes nothing else: the checkpoint has what it changed.
        """
        self._begin(hook, lambda: getattr(self._callbacks, hook)(*arguments))

    def _begin(self, hook: str, call: Callable[[], None]) -> None:
        rates = self._repeated.pop(hook, None)
        if rates is None:
            self._begun[hook] = constant_rates(self._model)
            call()
            return
        self._begun[hook] = rates
        values = self._model_state.snapshot().values()
        state = self._callbacks.state() if hook != "on_train_begin" else None
        restore_constant_rates(self._model, rates)
        call()
        self._model_state.assign(list(values))
        if state is not None:
            self._callbacks.restore(*state)

    def end(self, *hooks: str) -> None:
        """Take note that what these hooks began is over."""
        for hook in hooks:
            self._begun.pop(hook, None)

    def _collect(self, metric_sums: list[tf.Tensor], others: dict[str, np.ndarray]) -> Checkpoint:
        """Return a checkpoint of this task's values."""
        states, arrays = self._callbacks.state()
        values = self._model_state.snapshot()
        values |= zip(self._metrics_by_name, map(np.asarray, metric_sums), strict=True)
        values |= {name: np.asarray(v.value) for name, v in _generators().items()}
        values |= {_callback_name(number): array for number, array in enumerate(arrays)}
        values |= {f"{PREFIX}{name}": value for name, value in others.items()}
        self.update(callbacks=states, begun=dict(self._begun))
        state = TrainingState(self._options, self.progress)
        return Checkpoint(state, self._model_state.describe(), values)

    @property
    def _metrics_by_name(self) -> dict[str, Any]:
        variables = self._functions.replicas.metrics.variables
        names = stable_names(variable.path for variable in variables)
        return dict(zip(unique_names(f"metrics/{name}" for name in names), variables, strict=True))


def _generators() -> dict[str, keras.Variable]:
    """Return the state of what draws unseeded random numbers."""
    return {f"random/{number}": v for number, v in enumerate(keras_random.global_state())}


def _callback_name(number: int) -> str:
    """Return the name of an array of the callbacks' state in a checkpoint."""
    return f"callbacks/{number}"


def _has_all(values: Mapping[str, np.ndarray], variables: Mapping[str, keras.Variable]) -> bool:
    """Return whether there is a value of the same shape and type for each of some variables."""
    kinds = {name: (value.shape, value.dtype.name) for name, value in values.items()}
    return all(kinds.get(name) == (tuple(v.shape), v.dtype) for name, v in variables.items())
