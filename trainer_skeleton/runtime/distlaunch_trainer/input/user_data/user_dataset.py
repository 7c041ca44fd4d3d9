"""What is known of a user's ``tf.data.Dataset`` by its type, and the order of its rows."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.ops import gen_dataset_ops, gen_experimental_dataset_ops

from .same_rows import DataFacts, chain_of

Dataset = tf.data.Dataset


def keep_order() -> None:
    """Have data sets made from now on yield their rows in one order, also if that is slower.

    Otherwise tasks that take their rows of the same batches would train some twice and others
    never. ``options.deterministic`` does not override ``deterministic=False`` of an operation, such
    as ``map``, ``interleave`` and that of ``tfds.load(shuffle_files=True)``.
    """
    for module in (gen_dataset_ops, gen_experimental_dataset_ops):
        for name, function in list(vars(module).items()):
            is_operation = inspect.isfunction(function) and not name.startswith("_")
            if is_operation and "deterministic" in inspect.signature(function).parameters:
                setattr(module, name, _ordered(function))


def _ordered(operation: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operation)
    def create(*inputs: Any, **attributes: Any) -> Any:
        if attributes.get("deterministic") == "false":
            attributes["deterministic"] = "true"
        return operation(*inputs, **attributes)

    return create


def cache_by_task(name: str) -> None:
    """Have ``cache(file)`` of data sets made from now on write files of this task alone.

    TensorFlow refuses a second process that writes one, and tasks may share a machine or a disk.
    """
    cache = Dataset.cache

    @functools.wraps(cache)
    def cache_of_task(self: Dataset, filename: Any = "", **options: Any) -> Dataset:
        if not isinstance(filename, str) or filename:  # or it is kept in memory
            filename = tf.strings.join([filename, name.replace(":", "-")], ".")
        return cache(self, filename, **options)

    Dataset.cache = cache_of_task


def with_one_order(batches: Dataset) -> Dataset:
    """Return a data set that keeps the order of its rows, unless an operation of it does not."""
    options = tf.data.Options()
    options.deterministic = True
    return batches.with_options(options)


# What does not change the batches that it is given.
_KEEPS_BATCHES = (
    "_PrefetchDataset",
    "_OptionsDataset",
    "CacheDataset",
    "_AssertCardinalityDataset",
)
_BATCHES = ("_BatchDataset", "_ParallelBatchDataset", "_PaddedBatchDataset")


class BatchEnd(NamedTuple):
    """The ``batch(n)`` that a data set ends with."""

    rows: int  # that it is given in a pass; negative if there is no end, or none that is known
    size: int  # n
    drops: bool  # whether it leaves out a last batch that is smaller


def batch_end(batches: Dataset) -> BatchEnd | None:
    """Return the ``batch(n)`` that a data set ends with, None if it has none."""
    while type(batches).__name__ in _KEEPS_BATCHES:
        (batches,) = batches._inputs()  # noqa: SLF001
    if type(batches).__name__ not in _BATCHES:
        return None
    (rows,) = batches._inputs()  # noqa: SLF001
    drops = tf.get_static_value(batches._drop_remainder)  # noqa: SLF001
    return BatchEnd(int(rows.cardinality()), int(batches._batch_size), bool(drops))  # noqa: SLF001


# What comes to as many elements in any order of them, before and after they are in batches.
_KEEPS_LENGTH = {*_KEEPS_BATCHES, *_BATCHES, "_MapDataset", "_ParallelMapDataset", "_RepeatDataset"}
_KEEPS_ROWS = _KEEPS_LENGTH | {"_FilterDataset", "_ShuffleDataset"}


def has_constant_length(batches: Dataset, facts: DataFacts) -> bool:
    """Return whether each pass over a data set certainly has as many batches and rows."""
    if facts.is_python or facts.is_random:
        return False
    names = [type(each).__name__ for each in chain_of(batches)][::-1]
    if "_ShuffleDataset" not in names:
        return True
    after = names[names.index("_ShuffleDataset") :]
    first = next((at for at, name in enumerate(after) if name in _BATCHES), len(after))
    return _KEEPS_ROWS.issuperset(after[:first]) and _KEEPS_LENGTH.issuperset(after[first:])
