"""The rows of a batch: structures of dense, ragged and sparse tensors, in which None is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


def tensors_in(data: Any) -> list[Any]:
    """Return the tensors of a batch; a ragged or sparse tensor is one of them."""
    return [part for part in tf.nest.flatten(data) if part is not None]


def map_tensors(function: Callable[[Any], Any], data: Any) -> Any:
    """Return the structure of a batch with ``function`` of each tensor."""
    return tf.nest.map_structure(lambda part: None if part is None else function(part), data)


def count_rows(data: Any) -> tf.Tensor:
    """Return the number of rows of a batch (scalar, int64)."""
    first = tensors_in(data)[0]
    if isinstance(first, tf.RaggedTensor):
        return tf.cast(first.nrows(), tf.int64)
    if isinstance(first, tf.SparseTensor):
        return first.dense_shape[0]
    return tf.shape(first, tf.int64)[0]


def take_rows(data: Any, numbers: tf.Tensor) -> Any:
    """Return the rows of a batch with these numbers (vector, int64)."""
    return map_tensors(lambda part: row_reader(part)(numbers), data)


def row_reader(tensor: Any) -> Callable[[tf.Tensor], Any]:
    """Return a function that takes rows out of a tensor by their numbers (vector, int64).

    The rows of a sparse tensor are located once, so that reading some takes no look at all others.
    """
    if not isinstance(tensor, tf.SparseTensor):
        return lambda numbers: tf.gather(tensor, numbers)
    count = tf.shape(tensor.values, tf.int64)[0]
    values_of_rows = tf.RaggedTensor.from_value_rowids(
        tf.range(count), tensor.indices[:, 0], nrows=tensor.dense_shape[0], validate=False
    )

    def read(numbers: tf.Tensor) -> tf.SparseTensor:
        taken = tf.gather(values_of_rows, numbers)
        rows = tf.cast(taken.value_rowids(), tf.int64)[:, tf.newaxis]
        indices = tf.concat([rows, tf.gather(tensor.indices[:, 1:], taken.flat_values)], 1)
        shape = tf.concat([tf.shape(numbers, tf.int64), tensor.dense_shape[1:]], 0)
        part = tf.SparseTensor(indices, tf.gather(tensor.values, taken.flat_values), shape)
        part.set_shape([None, *tensor.shape[1:]])
        return part

    return read


def as_tensor(value: Any) -> Any:
    """Return an array as ``fit`` takes it, e.g. of numpy, pandas or scipy.sparse, as a tensor."""
    if isinstance(value, (tf.RaggedTensor, tf.SparseTensor, tf.Tensor)):
        return value
    if hasattr(value, "tocoo"):  # scipy.sparse
        entries = value.tocoo()
        indices = np.stack([entries.row, entries.col], axis=1).astype(np.int64)
        return tf.sparse.reorder(tf.SparseTensor(indices, entries.data, entries.shape))
    if hasattr(value, "to_numpy"):  # pandas
        value = value.to_numpy()
    return tf.convert_to_tensor(value)


def unpacked(data: tuple[Any, ...]) -> Any:
    """Return an element of a data set, of which functions get a tuple as several arguments."""
    return data if len(data) > 1 else data[0]
