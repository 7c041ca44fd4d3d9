"""The same random numbers for a row of a global batch, on any number of replicas (--same-random).

Every replica draws the numbers of all rows of the global batch and takes those of its own rows. So
layers that draw numbers for each row, such as dropout, augmentation and noise, compute what they
compute on one worker. Each replica draws as many numbers as one worker would.

What mixes rows, such as MixUp or CutMix, mixes those of a replica.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from . import keras_random

_step = threading.local()  # a replica is traced in a thread of its own


class BatchRows(NamedTuple):
    """The rows ``first, first + stride, …`` of a global batch, that a replica has.

    Attributes
    ----------
    first, stride
        The first row, and the distance to the next one.
    local, total
        How many rows the replica has, and all replicas have (scalars, int64).
    size
        The rows of the replica's data, of which one may be a placeholder, if they are constant.
    """

    first: Any
    stride: int
    local: tf.Tensor
    total: tf.Tensor
    size: int | None = None


def install() -> None:
    """Have Keras, and the common functions of ``tf.random``, draw for the global batch."""
    keras_random.install(same=True)
    keras_random.replace_draws(_for_global_batch)
    tf.random.normal = _normal(tf.random.normal, keras.random.normal)
    tf.random.truncated_normal = _normal(tf.random.truncated_normal, keras.random.truncated_normal)
    tf.random.uniform = _uniform(tf.random.uniform)


def draws_for_batch(step: Callable[..., Any]) -> Callable[..., Any]:
    """Have a replica's part of a step, ``(self, batch, …)``, draw numbers for its rows.

    Replica ``r`` of ``R`` has the rows ``r, r + R, r + 2R …`` of a global batch. Of batches of
    their own all replicas draw the same.
    """

    @wraps(step)
    def drawing(self: Any, batch: Any, *args: Any) -> Any:
        data, local, total, *_ = batch
        context = tf.distribute.get_replica_context()
        first, stride = context.replica_id_in_sync_group, context.num_replicas_in_sync
        rows = BatchRows(first, stride, local, total, constant_rows(data))
        with drawing_for(rows if self.replicas.has_divided_rows else None):
            return step(self, batch, *args)

    return drawing


@contextmanager
def drawing_for(rows: BatchRows | None) -> Iterator[None]:
    """Draw numbers in a replica's part of a step: its own, or those of its rows."""
    _step.rows = rows if keras_random.is_same() else None
    try:
        with keras_random.replica_draws(rows and rows.local):
            yield
    finally:
        _step.rows = None


def constant_rows(data: Any) -> int | None:
    """Return the rows of a batch, if they are constant when a step is traced."""
    shapes = [part.shape for part in tf.nest.flatten(data) if hasattr(part, "shape")]
    return next((shape[0] for shape in shapes if shape.rank), None)


def _for_global_batch(name: str, draw: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of Keras that draws, by what its first argument is."""

    def by_shape(shape: Any, *args: Any, **options: Any) -> Any:
        rows = _rows_of(shape)
        if rows is None:
            return draw(shape, *args, **options)
        whole, own = _divide(shape, rows)
        return tf.gather(draw(whole, *args, **options), own)

    def dropout(inputs: Any, rate: float, noise_shape: Any = None, seed: Any = None) -> Any:
        shape = tf.shape(inputs)
        if noise_shape is not None:
            shape = [shape[n] if size is None else size for n, size in enumerate(noise_shape)]
        rows = _rows_of(shape)
        if rows is None:
            return draw(inputs, rate, noise_shape, seed)
        whole, own = _divide(shape, rows)
        return inputs * tf.gather(draw(tf.ones(whole, inputs.dtype), rate, seed=seed), own)

    def categorical(logits: Any, *args: Any, **options: Any) -> Any:
        rows = _rows_of(tf.shape(logits))
        if rows is None:
            return draw(logits, *args, **options)
        whole, own = _divide(tf.shape(logits), rows)
        logits = tf.tensor_scatter_nd_update(tf.zeros(whole, logits.dtype), own[:, None], logits)
        return tf.gather(draw(logits, *args, **options), own)

    return {"dropout": dropout, "categorical": categorical}.get(name, by_shape)


def _rows_of(shape: Any) -> BatchRows | None:
    """Return the rows that a draw is for; None if its first dimension is no number of rows."""
    rows: BatchRows | None = getattr(_step, "rows", None)
    sizes = tf.get_static_value(tf.convert_to_tensor(shape, tf.int32), partial=True)
    if rows is None or sizes is None or not len(sizes):
        return rows if sizes is None else None
    is_constant = sizes[0] is not None and not (rows.size and sizes[0] % rows.size == 0)
    return None if is_constant else rows


def _divide(shape: Any, rows: BatchRows) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the shape for the global batch, and the indices of a replica's part of it.

    A layer may have put several parts of a row, such as time steps, where rows are.
    """
    shape = tf.cast(tf.convert_to_tensor(shape, tf.int32), tf.int64)
    local = tf.maximum(rows.local, 1)  # without rows there is a placeholder
    parts, rest = shape[0] // local, shape[0] % local
    size = tf.where(rest == 0, parts * tf.maximum(rows.total, 1), shape[0])
    number = tf.range(shape[0])
    row, part = number // tf.maximum(parts, 1), number % tf.maximum(parts, 1)
    own = (tf.cast(rows.first, tf.int64) + row * rows.stride) * parts + part
    own = tf.minimum(tf.where(rest == 0, own, number), size - 1)
    return tf.cast(tf.concat([[size], shape[1:]], 0), tf.int32), own


def _normal(theirs: Callable[..., Any], draw: Callable[..., Any]) -> Callable[..., Any]:
    """Return a normal distribution of ``tf.random`` that draws by Keras in a step."""

    def normal(
        shape: Any,
        mean: Any = 0.0,
        stddev: Any = 1.0,
        dtype: Any = tf.float32,
        *args: Any,
        **names: Any,
    ) -> Any:
        if not _is_in_step():
            return theirs(shape, mean, stddev, dtype, *args, **names)
        return tf.cast(mean, dtype) + tf.cast(stddev, dtype) * draw(shape, dtype=dtype)

    return normal


def _uniform(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``tf.random.uniform`` that draws by Keras in a step."""

    def uniform(
        shape: Any,
        minval: Any = 0,
        maxval: Any = None,
        dtype: Any = tf.float32,
        *args: Any,
        **names: Any,
    ) -> Any:
        if not _is_in_step():
            return theirs(shape, minval, maxval, dtype, *args, **names)
        if not tf.as_dtype(dtype).is_floating:
            return keras.random.randint(shape, minval, maxval, dtype=dtype)
        least = tf.cast(minval, dtype)
        width = tf.cast(1 if maxval is None else maxval, dtype) - least
        return least + width * keras.random.uniform(shape, dtype=dtype)

    return uniform


def _is_in_step() -> bool:
    return getattr(_step, "rows", None) is not None
