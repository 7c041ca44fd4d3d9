"""Examples that can be read in any order, how they are read, and the weights of their classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import DataError

Dataset = tf.data.Dataset


@dataclass(frozen=True)
class InputOptions:
    """How examples are read."""

    cache: str | None = None  # of parsed examples: ``memory``, or a local folder
    numbered: bool = False  # whether batches come with the numbers of their examples, for an audit
    check_numerics: bool = False  # whether NaN and infinite numbers are refused


DEFAULT = InputOptions()


class Examples(ABC):
    """Examples as a user's function returns them: Records, Arrays and the like."""

    @abstractmethod
    def open(
        self, cluster: Cluster, fallback_dir: str, options: InputOptions = DEFAULT
    ) -> ExampleSource:
        """Return the examples to read; a collective.

        An index that cannot be written beside the data is kept in ``fallback_dir``.
        """


class ExampleSource:
    """Examples that can be read in any order: as vectors of *items*, of which batches are made."""

    examples: int
    item_spec: Any  # a structure of ``tf.TensorSpec``
    item_bytes: int  # in memory, on average
    options: InputOptions
    facts: dict[str, Any]  # what ``summary.json`` records, besides the number of examples
    index_bytes = data_bytes = 0  # read to index the data, and of all data; 0 if unknown
    warnings: Sequence[str] = ()  # such as of empty files among others, or missing numbers
    # Whether any example can be had by its number: `items_at` gives items, otherwise `read` and
    # `read_ranges`.
    by_number = True
    input_options: tuple[str, ...] = ("cache",)  # those that have an effect

    def __init__(self, class_weight: Mapping[int, float] | None) -> None:
        self._weigh = class_weighting(class_weight)

    def items_at(self, numbers: tf.Tensor) -> Any:
        """Return the items of the examples with these numbers (vector, int64)."""
        return numbers

    def read(self, start: Any, stop: Any) -> Dataset:
        """Return the items of the examples ``start ... stop-1``, one by one."""
        raise NotImplementedError

    def read_ranges(self, ranges: Dataset) -> Dataset:
        """Return a vector of items for each range ``(start, stop)`` of examples, in their order."""
        raise NotImplementedError

    def batch(self, items: Dataset, rows: int) -> Dataset:
        """Return batches of ``rows`` items, each a row, from vectors of items of any length."""
        return items.rebatch(rows)

    def examples_of(self, batch: Any) -> Any:
        """Return the examples of a batch, with their numbers if these are requested."""
        if not self.options.numbered:
            return self._weigh(batch)
        data, numbers = batch
        return self._weigh(data), numbers

    def input_facts(self) -> list[str]:
        """Return what the examples are read from, as parts of a line."""
        return []

    def find_bad_record(self, numbers: Sequence[int]) -> str | None:  # noqa: ARG002
        """Return what is wrong with which of the examples with these numbers, if any is."""
        return None


def class_weighting(class_weight: Mapping[int, float] | None) -> Callable[[Any], Any]:
    """Return what puts the weights of classes beside a batch ``(x, y)``, as ``fit`` does."""
    if not class_weight:
        return lambda data: data
    last = max(class_weight) + 1
    by_class = [class_weight.get(n, 1.0) for n in range(last + 1)]
    with tf.device("CPU"):
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
