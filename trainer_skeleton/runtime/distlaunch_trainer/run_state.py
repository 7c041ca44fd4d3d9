"""All that a checkpoint holds of a run: its variables, metrics, random numbers and callbacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from . import keras_random
from .callbacks import Callbacks, templates
from .checkpoints import Checkpoint, Progress, RunOptions, TrainingState
from .cluster import Cluster
from .learning_rate import constant_rates, restore_constant_rates
from .model_state import ModelState
from .report import Report
from .step_functions import StepFunctions
from .variable_names import stable_names, unique_names


class RunState:
    """Collects the state of a run, and restores it on all tasks.

    Parameters
    ----------
    model
        A compiled model, whose optimizers have created their variables.
    functions
        The model's compiled functions.
    callbacks
        The callbacks.
    cluster, report
        The tasks, and where a warning is printed.
    options
        Those of the run.
    """

    def __init__(
        self,
        model: keras.Model,
        functions: StepFunctions,
        callbacks: Callbacks,
        cluster: Cluster,
        report: Report,
        *,
        options: RunOptions,
    ) -> None:
        self._options = options
        self._model_state = ModelState(model, cluster.strategy)
        self._functions = functions
        self._callbacks = callbacks
        self._cluster = cluster
        self._report = report
        self._model = model
        self._arrays: list[np.ndarray] = []  # of the callbacks' restored state
        self._begun: dict[str, dict[str, float]] = {}
        self._repeated: dict[str, dict[str, float]] = {}
        callbacks.state()  # warns before the first checkpoint is due

    def restore(self, checkpoint: Checkpoint | None, progress: Progress) -> None:
        """Restore a checkpoint on every task; only the chief needs to have it.

        Parameters
        ----------
        checkpoint
            The checkpoint; None on other tasks than the chief.
        progress
            The checkpoint's progress, on every task.

        Raises
        ------
        ModelError
            If the checkpoint is of another model or optimizer.
        """
        if checkpoint is not None:
            self._model_state.check_same(checkpoint.model)
        state, metrics = self._model_state.variables, self._metrics_by_name
        known = {**state, **metrics, **_generators()}
        expected = {name: np.zeros(v.shape, v.dtype) for name, v in known.items()}
        arrays = templates(progress.callbacks)
        expected |= {_callback_name(number): array for number, array in enumerate(arrays)}
        values = {
            name: value
            for name, value in (checkpoint.values if checkpoint is not None else {}).items()
            if name in expected and _is_like(expected[name], value)
        }
        has_metrics = values.keys() >= metrics.keys()
        has_generators = values.keys() >= _generators().keys()
        if checkpoint is not None and not has_metrics:
            self._report.warn("the metrics have changed: this epoch's start from scratch")
        flags = np.array([has_metrics, has_generators])
        agreed = self._cluster.broadcast_all(
            [flags, *(values.get(name, array) for name, array in expected.items())]
        )
        values = dict(zip(expected, agreed[1:], strict=True))
        self._model_state.assign([values[name] for name in state])
        has_metrics, has_generators = agreed[0]
        for name, variable in _generators().items() if has_generators else ():
            variable.assign(values[name])
        if has_metrics:
            self._functions.restore_metrics(
                [tf.convert_to_tensor(values[name]) for name in metrics]
            )
        self._arrays = [values[_callback_name(number)] for number in range(len(arrays))]

    def begin_training(self, progress: Progress, first_epoch: int = 0) -> None:
        """Have the callbacks begin the training, or resume it where ``progress`` is.

        `first_epoch` is the number that they get of the first epoch.
        """
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

    def collect(self, progress: Progress, metric_sums: list[tf.Tensor]) -> Checkpoint:
        """Return a checkpoint of this task's values.

        Parameters
        ----------
        progress
            How far the run is.
        metric_sums
            The metric variables, summed over the replicas.
        """
        states, arrays = self._callbacks.state()
        values = self._model_state.snapshot()
        values |= zip(self._metrics_by_name, map(np.asarray, metric_sums), strict=True)
        values |= {name: np.asarray(v.value) for name, v in _generators().items()}
        values |= {_callback_name(number): array for number, array in enumerate(arrays)}
        progress = replace(progress, callbacks=states, begun=dict(self._begun))
        return Checkpoint(
            TrainingState(self._options, progress), self._model_state.describe(), values
        )

    @property
    def _metrics_by_name(self) -> dict[str, Any]:
        variables = self._functions.metric_variables
        names = stable_names(variable.path for variable in variables)
        return dict(zip(unique_names(f"metrics/{name}" for name in names), variables, strict=True))


def _generators() -> dict[str, keras.Variable]:
    """Return the state of what draws unseeded random numbers."""
    return {f"random/{number}": v for number, v in enumerate(keras_random.global_state())}


def _callback_name(number: int) -> str:
    """Return the name of an array of the callbacks' state in a checkpoint."""
    return f"callbacks/{number}"


def _is_like(expected: np.ndarray, value: np.ndarray) -> bool:
    return (value.shape, value.dtype) == (expected.shape, expected.dtype)
