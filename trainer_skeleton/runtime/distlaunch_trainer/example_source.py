"""Examples that can be read in any order, and the weights of their classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from .errors import DataError

Dataset = tf.data.Dataset


class ExampleSource(ABC):
    """Examples that can be read in any order: as vectors of *items*, of which batches are made.

    Attributes
    ----------
    examples
        Number of examples.
    item_spec
        The type of an item: a structure of ``tf.TensorSpec``.
    item_bytes
        Bytes of an item in memory, on average.
    numbered
        Whether batches come with the numbers of their examples, for an audit.
    index_bytes, data_bytes
        Bytes read to index the data, and of all data; 0 if unknown.
    is_compressed
        Whether a file can only be read from its beginning.
    """

    examples: int
    item_spec: Any
    item_bytes: int
    numbered: bool
    index_bytes = data_bytes = 0
    is_compressed = False

    @abstractmethod
    def read(self, start: Any, stop: Any) -> Dataset:
        """Return the items of the examples ``start ... stop-1``, one by one."""

    @abstractmethod
    def read_ranges(self, ranges: Dataset) -> Dataset:
        """Return a vector of items for each range ``(start, stop)`` of examples, in their order."""

    def batch(self, items: Dataset, rows: int) -> Dataset:
        """Return batches of ``rows`` items, each a row, from vectors of items of any length."""
        return items.rebatch(rows)

    @abstractmethod
    def examples_of(self, batch: Any) -> Any:
        """Return the examples of a batch, with their numbers if these are requested."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what ``summary.json`` records of the data, besides the number of examples."""

    def find_bad_record(self, start: int, stop: int) -> str | None:  # noqa: ARG002
        """Return what is wrong with which of the examples ``start ... stop-1``, if any is."""
        return None

    def empty_files_note(self) -> str | None:
        """Return a warning that names files without records, if there are some among others."""
        return None


def class_weighting(class_weight: Mapping[int, float] | None) -> Callable[[Any], Any]:
    """Return what puts the weights of classes beside a batch ``(x, y)``, as ``fit`` does.

    Raises
    ------
    DataError
        If the data has weights of its own, or more than one ``y``; as the function is called.
    """
    if not class_weight:
        return lambda data: data
    last = max(class_weight) + 1
    by_class = [class_weight.get(n, 1.0) for n in range(last + 1)]
    weights = tf.constant(by_class, keras.config.floatx())

    def weigh(data: Any) -> tuple[Any, Any, tf.Tensor]:
        if not isinstance(data, tuple) or len(data) != 2 or tf.nest.is_nested(data[1]):
            raise DataError("class_weight takes data (x, y) with one y: see trainer/data.py")
        x, y = data
        if y.shape.rank > 1 and y.shape[-1] > 1:
            classes = tf.argmax(y, -1, tf.int32)
        else:
            flat = tf.squeeze(y, -1) if y.shape.rank > 1 else y
            classes = tf.cast(tf.round(tf.cast(flat, tf.float32)), tf.int32)
        return x, y, tf.gather(weights, tf.minimum(classes, last))

    return weigh
