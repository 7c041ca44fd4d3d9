"""Examples in memory: ``Arrays``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.batch_rows import (
    as_tensor,
    count_rows,
    map_tensors,
    row_reader,
    tensors_in,
)
from distlaunch_trainer.input.user_data.same_rows import check_equal, facts_of_arrays, gather_facts

from .example_source import DEFAULT, Examples, ExampleSource, InputOptions

Dataset = tf.data.Dataset
_NAMES = ("x", "y", "sample_weight")


@dataclass(frozen=True)
class Arrays(Examples):
    """Examples in memory: arrays, or structures of arrays, of the same length.

    Parameters
    ----------
    x
        What ``model.fit`` would take, or lists of numbers; the first dimension of each array counts
        the examples.
    y
        Likewise, the targets.
    sample_weight
        Likewise, the weight of each example.
    class_weight
        The weight of each class of ``y`` in the loss, 1 for those left out.
    """

    x: Any
    y: Any = None
    sample_weight: Any = None
    class_weight: Mapping[int, float] | None = None

    def __post_init__(self) -> None:
        if self.y is None and self.sample_weight is not None:
            raise DataError("Arrays with sample_weight need y: see trainer/data.py")

    def open(
        self,
        cluster: Cluster,
        fallback_dir: str,  # noqa: ARG002
        options: InputOptions = DEFAULT,
    ) -> ArraySource:
        """Check that all arrays have one length, and are the same on all tasks."""
        source = ArraySource(self, options)
        what = "the Arrays of trainer/data.py"
        of_tasks = gather_facts(source.data_facts, cluster.rendezvous, what)
        check_equal(of_tasks, cluster.role.peers, what, "rows")
        return source


class ArraySource(ExampleSource):
    """The examples of `Arrays`; an item is an example's number."""

    item_spec = tf.TensorSpec([], tf.int64)
    item_bytes = 8
    input_options = ()  # as they are in memory

    def __init__(self, arrays: Arrays, options: InputOptions) -> None:
        super().__init__(arrays.class_weight)
        parts = [_arrays_in(name, getattr(arrays, name)) for name in _NAMES]
        if options.check_numerics:
            _check_finite(parts)
        last = max(n for n, part in enumerate(parts) if part is not None)
        with tf.device("CPU"):  # not the first GPU, where a batch alone has its place
            tensors = map_tensors(as_tensor, tuple(parts[: last + 1]))
            self._readers = map_tensors(row_reader, tensors)
            lengths = {int(count_rows(tensor)) for tensor in tensors_in(tensors)}
        self.options = options
        if len(lengths) > 1:
            raise DataError(f"the arrays differ in length: {sorted(lengths)}: see trainer/data.py")
        self.examples = lengths.pop()
        parts = tf.nest.flatten(tensors_in(tensors), expand_composites=True)
        self.data_facts = facts_of_arrays(parts, self.examples)
        self.facts = {"kind": "arrays"}

    def examples_of(self, batch: tf.Tensor) -> Any:
        """Return the examples of a batch, with their numbers if these are requested."""
        data = map_tensors(lambda read: read(batch), self._readers)
        return super().examples_of((data, batch) if self.options.numbered else data)


def _arrays_in(name: str, value: Any) -> Any:
    """Return a structure of arrays: an array for a list of numbers, a tuple for one of arrays."""
    if isinstance(value, Mapping):
        return {key: _arrays_in(f"{name}[{key!r}]", part) for key, part in value.items()}
    if not isinstance(value, (list, tuple)):
        return value
    if any(_is_array(part) for part in tf.nest.flatten(value)):
        return tuple(_arrays_in(f"{name}[{number}]", part) for number, part in enumerate(value))
    try:
        return np.asarray(value)
    except ValueError:
        raise DataError(
            f"Arrays takes arrays, and the lists in {name} have different lengths: "
            f"give tf.ragged.constant({name}), see trainer/data.py"
        ) from None


def _check_finite(parts: Any) -> None:
    """Raise a DataError for an array with NaN or infinite numbers; `parts` is (x, y, weights)."""
    for (number, *keys), array in keras.tree.flatten_with_path(parts):
        values = np.asarray(array) if hasattr(array, "__array__") else np.zeros(0)
        if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
            rows = np.unique(np.nonzero(~np.isfinite(values))[0])
            raise DataError(
                f"{_NAMES[number]}{keys or ''} has NaN or infinite numbers in {len(rows):,} of "
                f"{len(values):,} examples, the first is {rows[0]} (from 0): fill them in, or "
                "leave these examples out"
            )


def _is_array(part: Any) -> bool:
    return hasattr(part, "tocoo") or len(getattr(part, "shape", ())) > 0
