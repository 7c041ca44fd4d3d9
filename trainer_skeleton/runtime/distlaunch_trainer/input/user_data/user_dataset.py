"""A user's ``tf.data.Dataset`` as a source of batches.

The data set ends with ``batch(n)``, where n is the global batch, and its batches may have any rank,
size and shape.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.ops import gen_dataset_ops, gen_experimental_dataset_ops

Dataset = tf.data.Dataset

NO_END = "has no end, or none that is known"  # for messages


@dataclass(frozen=True)
class BatchSource:
    """Batches that the user has made, of any rank, size and shape."""

    one_pass: Dataset  # the batches of one pass over the data, or of all if these have no end
    # From the number of a pass, and of a batch in it, to all batches from there on, without end.
    passes: Callable[[int, int], Dataset]
    kind: str = "data set"  # for messages; or ``PyDataset`` or ``generator``
    batch: int = 0  # rows of the first batch; 0 if unknown
    resumes_exactly: bool = False  # whether a resumed run gets the examples it would have got

    @property
    def is_endless(self) -> bool:
        """Whether ``one_pass`` has no end, or none that is known, as of a generator."""
        return bool(self.one_pass.cardinality() == tf.data.INFINITE_CARDINALITY)


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


def dataset_source(batches: Dataset) -> BatchSource:
    """Return a user's data set as a source of batches."""
    ordered = with_one_order(batches)

    def passes(_: int, batch: int) -> Dataset:
        return ordered.skip(batch).concatenate(ordered.repeat()) if batch else ordered.repeat()

    def endless(_: int, batch: int) -> Dataset:
        return ordered.skip(batch)

    is_endless = batches.cardinality() == tf.data.INFINITE_CARDINALITY
    return BatchSource(ordered, endless if is_endless else passes)
