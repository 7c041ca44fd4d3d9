"""The replicas' rows of a user's batches.

With row sharding every task iterates over the same batches, and replica ``r`` of ``R`` takes the
rows ``r, r + R, r + 2R ...`` of each. So batches may have any shapes and sizes, and each row is
seen once as long as all tasks have the same batches. Without sharding each task has batches of its
own, and a step is one of every task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.input.batch_rows import count_rows, take_rows
from distlaunch_trainer.input.batches import on_devices, with_static_rows
from distlaunch_trainer.keras_compat.keras_random import is_same

from .repeated_shuffles import RepeatedShuffles, renewed
from .row_identity import checksums, with_numbers
from .same_rows import RowComparison
from .user_dataset import with_one_order
from .work_division import Divided, divide_work

Dataset = tf.data.Dataset


def counted(batches: Dataset, comparison: RowComparison | None = None) -> Dataset:
    """Return batches as ``(data, rows, global_rows)``; the first may be compared with others'."""
    specs = tf.nest.flatten(batches.element_spec)
    shapes = [getattr(spec, "shape", tf.TensorShape(None)) for spec in specs]  # None has no shape
    sizes = [shape[0] if shape.rank else None for shape in shapes]
    if None not in sizes and comparison is None:
        # A call for each batch takes longer than all else of a pipeline in memory.
        rows = Dataset.from_tensors(tf.constant(sizes[0], tf.int64)).repeat()
        return Dataset.zip((batches, rows, rows))

    @tf.autograph.experimental.do_not_convert
    def count(position: tf.Tensor, data: Any) -> tuple[Any, ...]:
        data = _without_optionals(data)
        rows = count_rows(data)
        if comparison:
            rows = comparison.after(position, data, rows)
        return data, rows, rows

    # Counting the rows is too little work for a thread of its own.
    return batches.enumerate().map(count, synchronous=True)


def divided(
    batches: Dataset,
    replicas: int,
    replica_ids: range,  # of this task
    *,
    reads_ahead: bool = True,
) -> Dataset:
    """Return the rows of batches that belong to the replicas of a task, for these in turn.

    Elements are ``(data, rows, global_rows)``, before and after. A replica without rows has data of
    one row, which does not count. Without ``reads_ahead`` no element is read before it is needed.
    """
    if replicas == 1:
        return batches

    @tf.autograph.experimental.do_not_convert
    def part(replica: Any, data: Any, rows: tf.Tensor, total: tf.Tensor) -> tuple[Any, ...]:
        return *every_nth(data, tf.cast(replica, tf.int64), rows, replicas), total

    @tf.autograph.experimental.do_not_convert
    def one(*batch: Any) -> tuple[Any, ...]:
        return part(replica_ids[0], *batch)

    @tf.autograph.experimental.do_not_convert
    def several(*batch: Any) -> Dataset:
        numbers = Dataset.range(replica_ids.start, replica_ids.stop)
        return numbers.map(lambda replica: part(replica, *batch))

    calls = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": True} if reads_ahead else {}
    if len(replica_ids) == 1:
        return batches.map(one, **calls or {"synchronous": True})
    if not reads_ahead:
        return batches.flat_map(several)
    return batches.interleave(several, block_length=len(replica_ids), **calls)


def _own_parts(parts: Dataset, local: int, idle: int) -> Dataset:
    """Return ``(data, rows)`` of a task's batches for each of its ``local`` replicas in turn.

    ``idle`` batches without rows are added: their data have one row, which does not count.
    """
    parts = parts.map(lambda data, rows, _: (data, rows), synchronous=True)
    if not idle:
        return parts
    empty = parts.take(local).map(lambda data, rows: (data, tf.zeros_like(rows)))
    return parts.concatenate(empty.repeat(idle))


def with_end(parts: Dataset) -> Dataset:
    """Return parts, and then such of -1 global rows, without end.

    So steps see where the data end, and an iterator over several devices need not exchange in each
    step whether there is a batch.
    """
    empty = tf.nest.map_structure(_row_of_zeros, parts.element_spec[0])
    sizes = (tf.constant(0, tf.int64), tf.constant(-1, tf.int64))
    others = [_row_of_zeros(spec) for spec in parts.element_spec[3:]]
    end = (empty, *sizes, *others)[: len(parts.element_spec)]
    return parts.concatenate(Dataset.from_tensors(end).repeat())


def _row_of_zeros(spec: Any) -> Any:
    """Return a tensor of a type: of one row, or as many as it must have."""
    if not hasattr(spec, "shape"):
        return None
    shape = [1 if size is None else size for size in spec.shape] if spec.shape.rank else []
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.SparseTensor(
            tf.zeros([0, len(shape)], tf.int64), tf.zeros([0], spec.dtype), shape
        )
    if isinstance(spec, tf.RaggedTensorSpec):
        splits = [tf.zeros([shape[0] + 1], spec.row_splits_dtype)]
        splits += [tf.zeros([1], spec.row_splits_dtype)] * (spec.ragged_rank - 1)
        values = tf.zeros([0, *shape[spec.ragged_rank + 1 :]], spec.dtype)
        return tf.RaggedTensor.from_nested_row_splits(values, splits)
    return tf.zeros(shape, spec.dtype)


def every_nth(data: Any, first: tf.Tensor, end: tf.Tensor, step: int) -> tuple[Any, tf.Tensor]:
    """Return the rows ``first, first + step ...`` below ``end``, and how many these are.

    If there are none, the data are one row that does not count.
    """
    own = tf.maximum((end - first + step - 1) // step, 0)
    first = tf.where(own > 0, first, 0)
    return take_rows(data, tf.range(first, tf.where(own > 0, end, 1), step)), own


def _without_optionals(data: Any) -> Any:
    """Return data with None for the parts that Keras has no arrays for."""
    return tf.nest.map_structure(
        lambda part: None if isinstance(part, tf.experimental.Optional) else part, data
    )


@dataclass(kw_only=True)
class TaskParts:
    """The parts of a data set that belong to this task, of which each iterator reads one pass.

    Of a data set that repeats shuffled elements and may end early, the orders of an iterator depend
    on the number of those before (`repeated_shuffles`). All other data are the same in each.
    """

    dataset: Dataset
    cluster: Cluster
    reads_ahead: bool  # or no more than in one process, e.g. of a generator
    comparison: RowComparison | None = None  # with the first batches of other tasks
    division_rows: int | None = None  # of a pass, if they were counted
    # Whether Python code makes rows, perhaps others on each task: only whole batches show it.
    is_python: bool = False
    idle: int | None = None  # steps without a batch, if this task has batches of its own
    renews: bool = False  # whether iterators may end before the data, which shuffle and repeat
    repeats: bool = False  # whether an iterator reads one pass after the other, without end
    identity: str = ""  # checksum or number, if each row is to have one for an audit
    static_rows: int | None = None  # of each replica and step, if they must be known

    def __post_init__(self) -> None:
        self.shuffles = RepeatedShuffles(self.dataset) if self.renews else None
        self.division = self._divide()
        self._prefetched: int | None = tf.data.AUTOTUNE
        if self.division:
            self.comparison, self.reads_ahead = None, True
        elif not self.reads_ahead:
            self._prefetched = None
            if type(self.dataset).__name__ == "_PrefetchDataset":  # it is last, as in one process
                # As many on all tasks: what is read ahead of an epoch's end is skipped.
                self._prefetched = max(1, int(self.dataset._buffer_size))  # noqa: SLF001
                (self.dataset,) = self.dataset._inputs()  # noqa: SLF001
        self.batches = self._stream(self.division, self.dataset)

    @property
    def spec(self) -> Any:
        """The type of an element."""
        return self.batches.element_spec

    def iterator(self, skip: int = 0) -> Any:
        """Return an iterator, after the first batches."""
        parts, dataset, division = self.batches, self.dataset, self.division
        if self.shuffles:
            number = self.shuffles.next_number()
            division = division and self._divide(number)
            dataset = dataset if division else renewed(dataset, number)
        if self.shuffles or skip:
            parts = self._stream(division, dataset, skip)
        return iter(on_devices(parts, self.cluster))

    def _divide(self, renewed: int | None = None) -> Divided | None:
        local, role = self.cluster.local_replicas, self.cluster.role
        # With the same draws, which rows a replica has would be another law.
        if self.idle is not None or self.is_python or (is_same() and local > 1):
            return None
        return divide_work(self.dataset, role.rank, role.num_workers, self.division_rows, renewed)

    def _stream(self, division: Divided | None, dataset: Dataset, skip: int = 0) -> Dataset:
        """Return what an iterator reads, after the first batches."""
        cluster, local = self.cluster, self.cluster.local_replicas
        first, step = 0, 1  # the rows of a batch that this task makes
        replicas, replica_ids = cluster.replicas, cluster.replica_ids
        if division:
            batches, first, step = division.parts, cluster.role.rank, cluster.role.num_workers
        else:
            batches = counted(with_one_order(dataset), self.comparison)
        if division or self.idle is not None:
            replicas, replica_ids = local, range(local)
        if self.identity == "number":
            batches = with_numbers(batches, first, step)
        parts = divided(batches, replicas, replica_ids, reads_ahead=self.reads_ahead)
        if self.identity == "number":
            parts = parts.map(lambda data, *sizes: (data[0], *sizes, data[1]))
        if self.idle is not None:
            parts = _own_parts(parts, local, self.idle)
        if self.identity == "checksum":
            parts = parts.map(lambda data, *sizes: (data, *sizes, checksums(data)))
        rest = parts.skip(skip * local) if skip else parts
        if self.repeats:
            rest = rest.concatenate(parts.repeat()) if skip else parts.repeat()
        rest = with_static_rows(rest, self.static_rows)
        if rest.cardinality() != tf.data.INFINITE_CARDINALITY:
            rest = with_end(rest)
        rest = with_one_order(rest)
        return rest if self._prefetched is None else rest.prefetch(self._prefetched)
