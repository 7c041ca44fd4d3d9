"""The data of the workers: each reads all of it, in an order of its own.

So the loss of a worker loses no examples. The function that makes the data set is the same for all
workers and knows none of them: each starts at a random pass, or with a random batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tensorflow as tf

from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.batches import Data
from distlaunch_trainer.input.order.pipeline import Pipeline

Dataset = tf.data.Dataset

_PASSES = 1 << 30  # a worker starts at one of them
_PYTHON = "Python code, which a worker of parameter servers cannot run"
_REMEDY = "return Records, Arrays or a tf.data.Dataset without Python functions"


def worker_batches(data: Data, *, shuffles: bool) -> Dataset | Callable[[], Dataset]:
    """Return the batches of a worker, without an end: a data set, or the function that makes it.

    Parameters
    ----------
    data
        The data, sharded for one replica.
    shuffles
        Whether each pass over the data has an order of its own.

    Raises
    ------
    DataError
        If the data are made by Python code.
    """
    pipeline, steps = data.pipeline, data.plan.steps
    if isinstance(pipeline, Pipeline) and shuffles:
        make = lambda: _prepared(pipeline.passes_from(_random_below(_PASSES)))  # noqa: E731
        return tf.autograph.experimental.do_not_convert(make)
    batches = pipeline.dataset(range(1))
    if not isinstance(pipeline, Pipeline):
        _check_has_no_python(batches)
    if not steps:
        return _prepared(batches)
    start = Dataset.range(1).map(lambda _: _random_below(steps))
    return _prepared(start.flat_map(batches.skip))


@contextmanager
def explained_python() -> Iterator[None]:
    """Explain the error of a worker that finds no Python function of the chief's.

    Raises
    ------
    DataError
        In place of TensorFlow's error.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        if "pyfunc" not in str(error):
            raise
        raise DataError(
            f"the data set of trainer/data.py calls {_PYTHON} (py_function, numpy_function or "
            f"from_generator): {_REMEDY}"
        ) from error


def _check_has_no_python(batches: Dataset) -> None:
    """Refuse a data set with Python functions before it is sent to workers."""
    variant = tf.data.experimental.to_variant(batches)
    graph = tf.raw_ops.DatasetToGraphV2(input_dataset=variant, external_state_policy=1).numpy()
    if b"PyFunc" in graph:
        raise DataError(
            f"the data set of trainer/data.py calls {_PYTHON} (py_function, numpy_function or "
            f"from_generator): {_REMEDY}"
        )


def _random_below(limit: int) -> tf.Tensor:
    """Return a number that differs from process to process, whatever the seed of the run."""
    zero, most = tf.constant(0, tf.int64), tf.constant(limit, tf.int64)
    return tf.raw_ops.RandomUniformInt(shape=tf.constant([], tf.int32), minval=zero, maxval=most)


def _prepared(batches: Dataset) -> Dataset:
    return batches.prefetch(tf.data.AUTOTUNE)
