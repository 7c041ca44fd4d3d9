"""Which examples of a user's data set were seen: by a hash of each row, for an audit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import tensorflow as tf

from .batch_rows import tensors_in
from .cluster import Cluster

Dataset = tf.data.Dataset


def fingerprints(data: Any) -> tf.Tensor:
    """Return a number for each row of a batch that distinguishes it from other rows (int64).

    Zeros that pad a row to the length of its batch make no difference.
    """
    return tf.map_fn(_fingerprint, tensors_in(data), fn_output_signature=tf.int64)


def _fingerprint(row: list[Any]) -> tf.Tensor:
    parts = [part for tensor in row for part in _without_padding(tensor)]
    text = tf.strings.join([tf.io.serialize_tensor(part) for part in parts])
    return tf.strings.to_hash_bucket_fast(text, (1 << 62) - 1)


def _without_padding(tensor: Any) -> list[tf.Tensor]:
    """Return the values of a row, with their places where its shape may be its batch's."""
    parts = tf.nest.flatten(tensor, expand_composites=True)
    if len(parts) > 1 or tensor.shape.is_fully_defined():
        return parts
    places = tf.where(tf.not_equal(tensor, tf.zeros([], tensor.dtype)))
    return [places, tf.gather_nd(tensor, places)]


def all_fingerprints(batches: Dataset) -> np.ndarray:
    """Return the fingerprints of all rows of batches, in their order (vector, int64)."""
    hashes = batches.map(lambda *data: fingerprints(data), num_parallel_calls=tf.data.AUTOTUNE)
    return np.concatenate([*hashes.as_numpy_iterator(), np.empty(0, np.int64)])


class FingerprintIndex:
    """The positions in a user's data set of the rows that the tasks see, by fingerprint.

    Equal rows have several positions, which are given out in turn. Making this and calling it are
    collectives.

    Parameters
    ----------
    batches
        All batches of a pass; the same on all tasks.
    cluster
        The tasks.
    rows_of_a_pass
        Rows that all tasks together see in a pass; by default each row of ``batches`` once.
    """

    def __init__(self, batches: Dataset, cluster: Cluster, rows_of_a_pass: int | None) -> None:
        everything = all_fingerprints(batches)
        self.examples = len(everything)
        self._order = np.argsort(everything, kind="stable")
        self._sorted = everything[self._order]
        self._cluster = cluster
        self._rows_of_a_pass = self._left = rows_of_a_pass or self.examples
        self._seen: Counter[int] = Counter()

    def __call__(self, fingerprints: np.ndarray) -> np.ndarray:
        """Return the positions of rows that this task has seen; -1 for rows that have none."""
        first = np.searchsorted(self._sorted, fingerprints, "left")
        equal = np.searchsorted(self._sorted, fingerprints, "right") - first
        nth = np.zeros_like(fingerprints)
        nth[equal > 1] = self._occurrences(fingerprints[equal > 1])
        place = first + nth % np.maximum(equal, 1)
        self._count(len(fingerprints))
        return np.where(equal > 0, self._order[np.minimum(place, self.examples - 1)], -1)

    def _occurrences(self, own: np.ndarray) -> np.ndarray:
        """Return for each row how many equal ones any task has seen before in this pass."""
        occurrences = []
        for rank, rows in enumerate(self._cluster.all_gather(own)):
            for row in rows.tolist():
                if rank == self._cluster.role.rank:
                    occurrences.append(self._seen[row])
                self._seen[row] += 1
        return np.array(occurrences, np.int64)

    def _count(self, own: int) -> None:
        self._left -= int(self._cluster.all_reduce_sum(np.array(own, np.int64)))
        if self._left <= 0:
            self._left += self._rows_of_a_pass
            self._seen.clear()
