"""Examples that can be read in any order, how they are read, and the weights of their classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import DataError

Dataset = tf.data.Dataset


@dataclass(frozen=True)
class InputOptions:
    """How examples are read.

    Attributes
    ----------
    cache
        Where parsed examples are kept for the next epochs: ``memory``, a local folder, or None.
    parallel_reads
        Ranges of examples read at once per replica; None for 4, and 16 from a bucket.
    parallel_calls
        Examples parsed at once per replica; None to let TensorFlow choose.
    prefetch
        Batches made ahead per task; None to let TensorFlow choose.
    numbered
        Whether batches come with the numbers of their examples, for an audit.
    """

    cache: str | None = None
    parallel_reads: int | None = None
    parallel_calls: int | None = None
    prefetch: int | None = None
    numbered: bool = False

    def without_effect(self, effective: Collection[str]) -> str | None:
        """Return the flag of an option that is set and has no effect, if there is one."""
        for name in ("cache", "parallel_reads", "parallel_calls"):
            if getattr(self, name) is not None and name not in effective:
                return f"--{name.replace('_', '-')}"
        return None

    def describe(self, effective: Collection[str], reads: int) -> list[str]:
        """Return the options that have an effect and their values, as parts of a line."""
        calls, ahead = self.parallel_calls, self.prefetch
        places = {None: "no cache", "memory": "cache in memory"}
        values = {
            "parallel_reads": f"{reads} reads at once",
            "parallel_calls": "parse calls autotuned" if calls is None else f"{calls} parse calls",
            "cache": places.get(self.cache, f"cache in {self.cache}"),
        }
        parts = [text for name, text in values.items() if name in effective]
        return [*parts, "prefetch autotuned" if ahead is None else f"prefetch {ahead}"]

    @property
    def calls(self) -> int:
        """What ``tf.data`` takes for `parallel_calls`."""
        return tf.data.AUTOTUNE if self.parallel_calls is None else self.parallel_calls

    @property
    def batches_ahead(self) -> int:
        """What ``tf.data`` takes for `prefetch`."""
        return tf.data.AUTOTUNE if self.prefetch is None else self.prefetch


DEFAULT = InputOptions()


class Examples(ABC):
    """Examples as a user's function returns them: Records, Arrays and the like."""

    @abstractmethod
    def open(
        self, cluster: Cluster, fallback_dir: str, options: InputOptions = DEFAULT
    ) -> ExampleSource:
        """Return the examples to read; a collective.

        Parameters
        ----------
        cluster
            The tasks.
        fallback_dir
            Where an index is kept that cannot be written beside the data.
        options
            How to read.

        Raises
        ------
        DataError
            If the data cannot be used, or differ between the tasks.
        """


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
    options
        How the examples are read.
    index_bytes, data_bytes
        Bytes read to index the data, and of all data; 0 if unknown.
    reads_at_once
        Ranges of examples read at once.
    by_number
        Whether any example can be had by its number: `items_at` gives items, otherwise `read` and
        `read_ranges`.
    is_compressed
        Whether a file can only be read from its beginning.
    input_options
        Which of the options have an effect, besides `InputOptions.prefetch`.
    facts
        What ``summary.json`` records of the data, besides the number of examples.
    """

    examples: int
    item_spec: Any
    item_bytes: int
    options: InputOptions
    facts: dict[str, Any]
    index_bytes = data_bytes = 0
    reads_at_once = 0
    by_number = True
    is_compressed = False
    input_options: tuple[str, ...] = ("cache", "parallel_reads", "parallel_calls")

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
