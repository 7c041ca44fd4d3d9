"""What the training loop measures: the time of steps, gradient norms, scalars within an epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.keras_compat import keras_optimizers
from distlaunch_trainer.model.learning_rate import rates_of_last_step
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.step.step_timing import (
    StepTimer,
    StepTimes,
    host_variable,
    mean_timing,
    timing_of_steps,
)


class GradientNorm:
    """The global norm of the gradients that a model's optimizer applied last.

    They are those of the global batch, before clipping and without loss scaling; of accumulated
    gradients the mean. Rows that a sparse gradient has several times count one by one.
    """

    def __init__(self, model: keras.Model) -> None:
        self._norm = host_variable(math.nan, tf.float32)

        def measure(gradients: Sequence[Any]) -> None:
            self._norm.assign(tf.cast(tf.linalg.global_norm(gradients), tf.float32))

        keras_optimizers.observe_gradients(model.optimizer, measure)

    def value(self) -> float | None:
        """Return the norm; None before the first update, or if it is not finite."""
        norm = float(self._norm.numpy())
        return norm if math.isfinite(norm) else None


class Measurements:
    """Measures the steps of a loop: their time, scalars every so many steps, gradient norms."""

    def __init__(
        self,
        model: keras.Model,
        cluster: Cluster,
        report: Report,
        *,
        scalars_every: int = 0,  # 0 for the end of each epoch only
        gradient_norm: bool = False,
    ) -> None:
        self._model = model
        self._cluster = cluster
        self._report = report
        self._every = scalars_every
        is_compiled = isinstance(cluster.strategy, tf.distribute.TPUStrategy)  # with the optimizer
        self._norm = GradientNorm(model) if gradient_norm and not is_compiled else None
        self._timings: list[dict[str, Any]] = []  # of the epochs in this process
        self._last = 0, 0.0  # step and time of the last scalars of this epoch

    def start_epoch(self, step: int) -> None:
        """Measure the speed from here, ``step`` steps being done."""
        self._last = step, time.perf_counter()

    def boundary(self, step: int, end: int) -> int:
        """Return where an execution after ``step`` ends at the latest: at ``end``, or earlier."""
        return min(end, (step // self._every + 1) * self._every) if self._every else end

    def is_due(self, step: int) -> bool:
        """Return whether scalars are written after ``step``."""
        return bool(self._every) and step % self._every == 0

    def write(self, step: int, logs: dict[str, Any]) -> None:
        """Write scalars after ``step``, with the metrics so far in the epoch."""
        last, written = self._last
        self.start_epoch(step)
        speed = (step - last) / max(self._last[1] - written, 1e-9)
        values = logs | rates_of_last_step(self._model) | {"steps_per_second": speed}
        self._report.batch_scalars(step, values | self.norms())

    def norms(self) -> dict[str, float]:
        """Return the norm of the gradients as it is named in records, if it is measured."""
        norm = self._norm.value() if self._norm else None
        return {} if norm is None else {"gradient_norm": norm}

    def end_epoch(self, timer: StepTimer | None) -> dict[str, Any]:
        """Return an epoch's ``timing`` without that of each task, and the norm of gradients."""
        timing = self._time_epoch(timer) if timer else None
        if timing:
            self._timings.append(timing)
            timing = {name: value for name, value in timing.items() if name != "tasks"}
        return {"timing": timing, **self.norms()}

    @property
    def timing(self) -> dict[str, Any] | None:
        """Where the time of steps went, see `timing_of_steps`.

        Of the epochs of this process after the first, in which functions are traced.
        """
        return mean_timing(self._timings[1:] or self._timings)

    def _time_epoch(self, timer: StepTimer) -> dict[str, Any] | None:
        own = timer.take()
        gathered = self._cluster.all_gather(np.stack([own.total, own.input, own.exchange]))
        times = [StepTimes(*seconds) for seconds in gathered]
        return timing_of_steps(dict(zip(self._cluster.role.peers, times, strict=True)))
