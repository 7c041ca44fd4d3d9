"""Where the time of training steps goes: input, compute, exchange, waiting for the slowest task.

Clocks are read inside the compiled executions, of which Python sees the start and the end only:
when a step starts, when its batch is there, and before and after gradients are all-reduced. A GPU
runs behind the CPU that reads the clock, so its shares are less exact.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

OF_TRAINER = "distlaunch"
"""The name of this package's variables, which no checkpoint holds."""

MODERATE_INPUT, HIGH_INPUT = 0.05, 0.2
"""Shares of input from which TensorFlow's profiler calls a run moderately or highly input-bound
(op_stats_to_input_pipeline_analysis.cc)."""

PARTS = ("total", "input", "compute", "exchange", "wait")
"""The time of a step and its parts, as `table_of_steps` has them."""

_LEAST_WAITED = 1.0  # seconds of a run below which waiting for input is not worth a hint

_CAPACITY = 4096  # steps of an epoch that are kept, the last ones
_START, _READY, _EXCHANGE, _END = range(4)


class StepTimer:
    """Reads the clock in the steps of an execution; used while they are traced, and after them."""

    def __init__(self) -> None:
        # Of each step: start, batch ready and end in seconds, and the seconds of its exchange.
        self._rows = host_variable(tf.zeros([_CAPACITY, 4], tf.float64))
        self._count = host_variable(0)
        self._exchange = host_variable(0.0, tf.float64)
        self._thread: int | None = None  # of the replica whose exchange is timed

    def start(self, steps: tf.Tensor) -> tf.Tensor:
        """Start an execution of some steps (int32); return the number of its first one."""
        first = self._count.read_value()
        self._count.assign_add(steps)
        return first

    def time_step(
        self,
        number: tf.Tensor,  # that of `start`, and one more for each step of the execution
        get_batch: Callable[[], Any],
        train: Callable[[Any], tuple[tf.Tensor, ...]],
        run: Callable[[Callable[..., Any], tuple[Any, ...]], Any],
    ) -> tuple[Any, ...]:
        """Return the next batch and what ``train`` returns of it, and record the step's times.

        ``run`` calls a function on each replica with its part of arguments, on its device.
        """
        start = tf.timestamp()
        batch = get_batch()
        tensors = tf.nest.flatten(batch, expand_composites=True)  # None: an output without targets
        with tf.control_dependencies([tensor for tensor in tensors if tensor is not None]):
            ready = tf.timestamp()

        @tf.autograph.experimental.do_not_convert
        def copy(batch: Any) -> Any:  # otherwise the step may run before the clock
            with tf.control_dependencies([ready]):
                return tf.nest.map_structure(lambda v: None if v is None else tf.identity(v), batch)

        batch = run(copy, (batch,))
        self._thread = None
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        results = train(batch)
        # The results are those of the forward pass: the step ends with its updates of variables.
        updates = [op for op in graph.get_operations()[before:] if op.op_def.is_stateful]
        with tf.control_dependencies([*results, *updates]):
            end = tf.timestamp()
        exchange = tf.constant(0.0, tf.float64)
        if self._thread is not None:  # the step exchanges gradients, if only at updates
            exchange = self._exchange.read_value()
            self._exchange.assign(0.0)
        row = tf.stack([start, ready, exchange, end])
        tf.raw_ops.ResourceScatterUpdate(
            resource=self._rows.handle, indices=number % _CAPACITY, updates=row
        )
        return batch, *results

    def time_exchange(self, gradients: Sequence[Any], reduce: Callable[[], list[Any]]) -> list[Any]:
        """Return sums that ``reduce`` makes of gradients; those of the first replica are timed."""
        thread = threading.get_ident()
        if self._thread not in (None, thread):
            return reduce()
        self._thread = thread
        with tf.control_dependencies(_tensors(gradients)):
            start = tf.timestamp()
        sums = reduce()
        with tf.control_dependencies([start, *_tensors(sums)]):
            end = tf.timestamp()
        self._exchange.assign_add(end - start)
        return sums

    def take(self) -> np.ndarray:
        """Return seconds of the steps since the last call, or of the last 4,096 of them.

        The rows are the whole step, its wait for the batch, and its exchange.
        """
        count = int(self._count.numpy())
        rows = self._rows.numpy()
        first = max(0, count - _CAPACITY)
        self._count.assign(0)
        return _seconds(rows[np.arange(first, count) % _CAPACITY])

    def shares_since(self, seconds: float) -> dict[str, float]:
        """Return the shares of input, exchange and the rest in the steps that ended after a time.

        The time is in seconds since 1970. Any thread may call it, and steps may run meanwhile.
        """
        rows = self._rows.numpy()
        rows = rows[(rows[:, _END] > seconds) & (rows[:, _END] > rows[:, _START])]
        total, waited, exchange = _seconds(rows).sum(axis=1).tolist()
        if not total:
            return {}
        compute = max(total - waited - exchange, 0.0)
        return {"input": waited / total, "compute": compute / total, "exchange": exchange / total}


def _seconds(rows: np.ndarray) -> np.ndarray:
    """Return the seconds of steps, of their waits for the batch, and of their exchanges."""
    total, waited = rows[:, _END] - rows[:, _START], rows[:, _READY] - rows[:, _START]
    return np.stack([total, np.maximum(waited, 0.0), np.maximum(rows[:, _EXCHANGE], 0.0)])


def has_clock() -> bool:
    """Return whether TensorFlow allows to read the clock; not after ``enable_op_determinism()``."""
    try:
        tf.timestamp()
    except tf.errors.FailedPreconditionError:
        return False
    return True


def table_of_steps(seconds: np.ndarray) -> np.ndarray:
    """Return where the time of steps went on each task: a row of `PARTS`, and how often it is last.

    It is given what `StepTimer.take` returns on each task, of the same steps: their number is above
    0. The parts are mean seconds per step: ``input`` (waiting for the batch), ``exchange`` (the
    all-reduce of the task that came last to it), ``wait`` (for that task, in the all-reduce) and
    ``compute``, the rest. The last column is the share of steps in which the task came last.
    """
    total, waited, exchanged = seconds.mean(axis=2).T
    exchanges = seconds[:, 2]
    shortest = exchanges.min(axis=0).mean()  # all end at the same time
    compute = np.maximum(total - waited - exchanged, 0.0)
    exchange = np.full_like(total, shortest)
    is_last = exchanges.argmin(axis=0) == np.arange(len(seconds))[:, np.newaxis]
    parts = (total, waited, compute, exchange, exchanged - shortest, is_last.mean(axis=1))
    return np.stack(parts, axis=1)


def mean_timing(steps: int, table: np.ndarray) -> dict[str, Any]:
    """Return the number of steps, and the mean seconds of their parts over all tasks."""
    return {"steps": steps, **_named_parts(table.mean(axis=0))}


def task_timing(steps: int, table: np.ndarray, tasks: Sequence[str]) -> dict[str, Any]:
    """Return the same, with the parts of each task, and how often which of several was last."""
    shares = [round(float(share), 3) for share in table[:, -1]]
    return {
        **mean_timing(steps, table),
        "slowest": dict(zip(tasks, shares, strict=True)) if len(tasks) > 1 else {},
        "tasks": {name: _named_parts(row) for name, row in zip(tasks, table, strict=True)},
    }


def input_hint(timing: Mapping[str, Any] | None, options: Sequence[str] | None) -> str | None:
    """Return what to do if a run's steps wait for input; None if they do not, or for short runs.

    `options` are those of reading that have an effect on the data, None for a data set of the user.
    """
    if not timing or timing["input"] * timing["steps"] < _LEAST_WAITED:
        return None
    share = timing["input"] / timing["total"]
    if share < MODERATE_INPUT:
        return None
    degree = "highly" if share >= HIGH_INPUT else "moderately"
    return (
        f"input: {share:.0%}".replace("%", " %") + f" of each step is waiting for data, the run is "
        f"{degree} input-bound: {_input_remedy(options)}"
    )


def _input_remedy(options: Sequence[str] | None) -> str:
    if options is None:
        return "try map(…, num_parallel_calls=tf.data.AUTOTUNE) and cache() of its data set"
    if not options:
        return "its data are in memory, so machines with more CPU cores help"
    return "try " + ", ".join(f"--{name.replace('_', '-')}" for name in options)


def _named_parts(row: np.ndarray) -> dict[str, float]:
    return {name: round(float(value), 9) for name, value in zip(PARTS, row, strict=False)}


def _tensors(values: Sequence[Any]) -> list[tf.Tensor]:
    return tf.nest.flatten(list(values), expand_composites=True)


def host_variable(value: Any, dtype: tf.DType | None = None) -> tf.Variable:
    """Return a variable on the CPU that no strategy distributes, also within its scope."""
    with tf.device("CPU:0"):
        return ResourceVariable(value, trainable=False, dtype=dtype, name=OF_TRAINER)
