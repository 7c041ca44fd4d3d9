"""A user's ``tf.data.Dataset`` as a source of batches.

The data set ends with ``batch(n)``, where n is the global batch, and its batches may have any rank,
size and shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

Dataset = tf.data.Dataset


@dataclass(frozen=True)
class BatchSource:
    """Batches that the user has made, of any rank, size and shape.

    Attributes
    ----------
    one_pass
        The batches of one pass over the data, or of all passes if these have no end.
    passes
        From the number of a pass, and of a batch in it, to all batches from there on, without end.
    kind
        For messages: ``data set``, ``PyDataset`` or ``generator``.
    batch
        Rows of the first batch; 0 if unknown.
    length_problem
        Why ``one_pass`` has no end, for messages.
    is_shardable
        Whether TensorFlow may shard its files.
    resumes_exactly
        Whether a run that is resumed gets the examples that it would have got.
    """

    one_pass: Dataset
    passes: Callable[[int, int], Dataset]
    kind: str = "data set"
    batch: int = 0
    length_problem: str = "has no end"
    is_shardable: bool = True
    resumes_exactly: bool = False

    @property
    def is_endless(self) -> bool:
        """Whether ``one_pass`` has no end, or none that is known."""
        return bool(self.one_pass.cardinality() == tf.data.INFINITE_CARDINALITY)


def dataset_source(batches: Dataset) -> BatchSource:
    """Return a user's data set as a source of batches."""
    options = tf.data.Options()
    options.deterministic = True  # all tasks must come to the rows in one order
    ordered = batches.with_options(options)

    def passes(_: int, batch: int) -> Dataset:
        return ordered.skip(batch).concatenate(ordered.repeat()) if batch else ordered.repeat()

    def endless(_: int, batch: int) -> Dataset:
        return ordered.skip(batch)

    is_endless = batches.cardinality() == tf.data.INFINITE_CARDINALITY
    return BatchSource(ordered, endless if is_endless else passes)
