"""The data of the workers: each reads all of it, in an order of its own.

So the loss of a worker loses no examples. The function that makes the data set is the same for all
workers and knows none of them: each starts at a random pass, or with a random batch.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.batches import Data
from distlaunch_trainer.input.data_setup import AnyData
from distlaunch_trainer.input.user_data.same_rows import facts_of

Dataset = tf.data.Dataset

_PASSES = 1 << 30  # a worker starts at one of them


def worker_batches(data: AnyData, *, shuffles: bool) -> Dataset | Callable[[], Dataset]:
    """Return the batches of a worker, without an end: a data set, or the function that makes it.

    The data are sharded for one replica; with `shuffles` each pass over them has its own order.
    """
    steps, batches = data.plan.steps, data.of_one_replica()
    if facts_of(batches).is_python:
        raise DataError(
            "the data set of trainer/data.py calls Python code, which a worker of parameter "
            "servers cannot run (py_function, numpy_function or from_generator): return Records, "
            "Arrays or a tf.data.Dataset without Python functions"
        )
    if isinstance(data, Data) and shuffles:
        passes_from = data.pipeline.passes_from
        make = lambda: _prepared(passes_from(_random_below(_PASSES)))  # noqa: E731
        return tf.autograph.experimental.do_not_convert(make)
    if not steps:
        return _prepared(batches)
    start = Dataset.range(1).map(lambda _: _random_below(steps))
    return _prepared(start.flat_map(batches.skip))


def _random_below(limit: int) -> tf.Tensor:
    """Return a number that differs from process to process, whatever the seed of the run."""
    zero, most = tf.constant(0, tf.int64), tf.constant(limit, tf.int64)
    return tf.raw_ops.RandomUniformInt(shape=tf.constant([], tf.int32), minval=zero, maxval=most)


def _prepared(batches: Dataset) -> Dataset:
    return batches.prefetch(tf.data.AUTOTUNE)
