"""Which rows of a user's data set were trained on, for an audit.

A row is known by a checksum of its bytes, from which its position in a pass follows, as a pass is
read for that before. Rows that random operations change are numbered as they are divided.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.batch_rows import count_rows, tensors_in, unpacked

Dataset = tf.data.Dataset


def checksums(data: Any) -> tf.Tensor:
    """Return a number for each row of a batch that distinguishes it from other rows (int64).

    Zeros that pad a row to the length of its batch make no difference.
    """
    return tf.map_fn(_checksum, tensors_in(data), fn_output_signature=tf.int64)


def _checksum(row: list[Any]) -> tf.Tensor:
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


def with_numbers(batches: Dataset, first: int, step: int) -> Dataset:
    """Return a task's rows of the batches of a pass, with their positions in it beside the data.

    Elements are ``(data, rows, global_rows)``. Of a batch a task has the rows ``first, first + step
    ...``.
    """

    @tf.autograph.experimental.do_not_convert
    def number(before: tf.Tensor, element: Any) -> tuple[Any, Any]:
        data, rows, total = element
        numbers = before + first + step * tf.range(count_rows(data))
        return before + total, ((data, numbers), rows, total)

    return batches.scan(tf.constant(0, tf.int64), number)


class ChecksumIndex:
    """The positions in a pass of rows that the tasks see, by checksum.

    Equal rows have several positions, which are given out in turn. Calling this is a collective.
    """

    def __init__(self, batches: Dataset, cluster: Cluster, what: str, *, is_own: bool) -> None:
        """Read the batches of a pass, which are this task's own or those of all tasks."""
        sums = batches.map(lambda *data: checksums(unpacked(data)), tf.data.AUTOTUNE)
        own = np.concatenate([*sums.as_numpy_iterator(), np.empty(0, np.int64)])
        of_tasks = [own.tolist()]
        if is_own:
            of_tasks = cluster.rendezvous.exchange("checksums", *of_tasks, "to audit")
        is_same = all(each == of_tasks[0] for each in of_tasks)  # each row is seen by all tasks
        everything = own if is_same else np.concatenate(of_tasks).astype(np.int64)
        self.examples = len(everything)
        self._order = np.argsort(everything, kind="stable")
        self._sorted = everything[self._order]
        self._has_equal = bool((np.diff(self._sorted) == 0).any())
        self._cluster, self._what = cluster, what
        self._rows_of_pass = self._left = sum(map(len, of_tasks))
        self._seen: Counter[int] = Counter()  # by all tasks in this pass

    def __call__(self, sums: np.ndarray) -> np.ndarray:
        """Return the positions of rows that this task has seen."""
        first = np.searchsorted(self._sorted, sums, "left")
        equal = np.searchsorted(self._sorted, sums, "right") - first
        if not equal.all():
            raise DataError(
                f"{self._what}: {np.count_nonzero(equal == 0):,} rows that were trained on are "
                "others than those of a first reading, so --audit cannot follow them: seed what "
                "draws numbers in Python code, or leave --audit out"
            )
        if self._has_equal:
            first = first + self._occurrences(sums) % equal
        return self._order[first]

    def _occurrences(self, own: np.ndarray) -> np.ndarray:
        """Return for each row how many equal ones any task has seen before in this pass."""
        of_tasks = self._cluster.rendezvous.exchange("audit", own.tolist(), "to audit")
        occurrences = []
        for rank, rows in enumerate(of_tasks):
            for row in rows:
                if rank == self._cluster.role.rank:
                    occurrences.append(self._seen[row])
                self._seen[row] += 1
            self._left -= len(rows)
        if self._left <= 0:
            self._left += self._rows_of_pass
            self._seen.clear()
        return np.array(occurrences, np.int64)
