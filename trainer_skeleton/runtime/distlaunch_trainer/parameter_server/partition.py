"""How variables are partitioned over the parameter servers: along their first dimension."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import keras
import numpy as np
import tensorflow as tf

MIN_PART_BYTES = 256 << 10
"""No part of a variable is smaller, as TensorFlow's guide recommends."""

_ELEMENTWISE_OPTIMIZERS = (
    *(keras.optimizers.SGD, keras.optimizers.RMSprop, keras.optimizers.Adam),
    *(keras.optimizers.AdamW, keras.optimizers.Adagrad, keras.optimizers.Adadelta),
    *(keras.optimizers.Adamax, keras.optimizers.Nadam, keras.optimizers.Ftrl),
    keras.optimizers.Lion,
)


def is_elementwise(optimizer: keras.optimizers.Optimizer) -> bool:
    """Return whether an optimizer updates each number of a variable by itself.

    Others, and those that clip by the norm of a variable, need it whole.
    """
    return type(optimizer) in _ELEMENTWISE_OPTIMIZERS and optimizer.clipnorm is None


def part_bounds(shape: Sequence[int], itemsize: int, servers: int) -> list[tuple[int, int]]:
    """Return the first row, and one past the last, of each part of a variable.

    A number of it has `itemsize` bytes; there are as many parts as servers at most.
    """
    rows = shape[0] if shape else 1
    size = prod(shape) * itemsize
    parts = max(1, min(servers, rows, size // MIN_PART_BYTES))
    sizes = (rows // parts + (number < rows % parts) for number in range(parts))
    return list(pairwise(accumulate(sizes, initial=0)))


def split(value: np.ndarray, bounds: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """Return the parts of a value."""
    return [value] if len(bounds) == 1 else [value[start:stop] for start, stop in bounds]


def split_gradient(gradient: Any, bounds: Sequence[tuple[int, int]]) -> list[Any]:
    """Return the parts of a gradient: a tensor, rows of one (``tf.IndexedSlices``), or None."""
    if len(bounds) == 1 or gradient is None:
        return [gradient] * len(bounds)
    if isinstance(gradient, tf.IndexedSlices):
        return [_rows_between(gradient, start, stop) for start, stop in bounds]
    return tf.split(gradient, [stop - start for start, stop in bounds])


def _rows_between(rows: tf.IndexedSlices, start: int, stop: int) -> tf.IndexedSlices:
    is_inside = tf.logical_and(rows.indices >= start, rows.indices < stop)
    return tf.IndexedSlices(
        tf.boolean_mask(rows.values, is_inside),
        tf.boolean_mask(rows.indices, is_inside) - start,
        tf.concat([[stop - start], tf.shape(rows.values)[1:]], 0),
    )
