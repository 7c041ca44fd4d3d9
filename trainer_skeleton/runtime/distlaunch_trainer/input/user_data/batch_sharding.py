"""The replicas' rows of a user's batches.

With row sharding every task iterates over the same batches, and replica ``r`` of ``R`` takes the
rows ``r, r + R, r + 2R ...`` of each. So batches may have any shapes and sizes, and each row is
seen once as long as all tasks have the same batches. Without sharding each task has batches of its
own, and a step is one of every task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.input.batch_rows import count_rows, take_rows
from distlaunch_trainer.input.batches import on_devices, with_static_rows

from .row_identity import with_checksums, with_numbers
from .same_rows import RowComparison, chain_of
from .user_dataset import with_one_order
from .work_division import DatasetGraph, Divided, divide_work_of

Dataset = tf.data.Dataset

_TIMES_READ = "_distlaunch_times_read"  # an attribute of shuffles


def divided(
    batches: Dataset,  # the same on every task
    replicas: int,
    replica_ids: range,  # of this task
    comparison: RowComparison | None = None,  # of the first batch with those of other tasks
    *,
    reads_ahead: bool = True,
) -> Dataset:
    """Return the rows of batches that belong to the replicas of a task, for these in turn.

    Elements are ``(data, rows, global_rows)``. A replica without rows has data of one row, which
    does not count.
    """
    if replicas == 1:
        return _counted(batches)

    def part(replica: Any, position: tf.Tensor, data: Any) -> tuple[Any, ...]:
        data = _without_optionals(data)
        total = count_rows(data)
        if comparison:
            total = comparison.after(position, data, total)
        return *every_nth(data, tf.cast(replica, tf.int64), total, replicas), total

    return _for_replicas(batches.enumerate(), part, replica_ids, reads_ahead=reads_ahead)


def _counted(batches: Dataset) -> Dataset:
    """Return whole batches with their rows."""
    specs = tf.nest.flatten(batches.element_spec)
    shapes = [getattr(spec, "shape", tf.TensorShape(None)) for spec in specs]  # None has no shape
    sizes = [shape[0] if shape.rank else None for shape in shapes]
    if None not in sizes:
        # A call for each batch takes longer than all else of a pipeline in memory.
        rows = Dataset.from_tensors(tf.constant(sizes[0], tf.int64)).repeat()
        return Dataset.zip((batches, rows, rows))

    @tf.autograph.experimental.do_not_convert
    def whole(_: tf.Tensor, data: Any) -> tuple[Any, ...]:
        data = _without_optionals(data)
        rows = count_rows(data)
        return data, rows, rows

    # Counting the rows is too little work for a thread of its own.
    return batches.enumerate().map(whole, synchronous=True)


def own_parts(batches: Dataset, local: int, idle: int = 0, *, reads_ahead: bool = True) -> Dataset:
    """Return ``(data, rows)`` of a task's batches for each of its ``local`` replicas in turn.

    ``idle`` batches without rows are added: their data have one row, which does not count.
    """
    parts = divided(batches, local, range(local), reads_ahead=reads_ahead)
    parts = parts.map(lambda data, rows, _: (data, rows), synchronous=True)
    if not idle:
        return parts
    empty = parts.take(local).map(lambda data, rows: (data, tf.zeros_like(rows)))
    return parts.concatenate(empty.repeat(idle))


def divided_locally(parts: Dataset, local: int) -> Dataset:
    """Return the rows of each of a task's ``local`` replicas in turn, of the task's rows.

    Elements are ``(data, rows, global_rows)``, before and after.
    """
    if local == 1:
        return parts

    def part(replica: Any, data: Any, rows: tf.Tensor, total: tf.Tensor) -> tuple[Any, ...]:
        return *every_nth(data, replica, rows, local), total

    return _for_replicas(parts, part, range(local), reads_ahead=True)


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


def _for_replicas(
    elements: Dataset, part: Callable[..., Any], replicas: range, *, reads_ahead: bool
) -> Dataset:
    """Return the parts of each element for replicas in turn, of several elements at once.

    Without ``reads_ahead`` no element is read before it is needed.
    """

    @tf.autograph.experimental.do_not_convert
    def several(*element: Any) -> Dataset:
        numbers = Dataset.range(replicas.start, replicas.stop)
        return numbers.map(lambda replica: part(replica, *element))

    @tf.autograph.experimental.do_not_convert
    def one(*element: Any) -> Any:
        return part(replicas[0], *element)

    calls = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": True} if reads_ahead else {}
    if len(replicas) == 1:
        return elements.map(one, **calls or {"synchronous": True})
    if not reads_ahead:
        return elements.flat_map(several)
    return elements.interleave(several, block_length=len(replicas), **calls)


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
    on the number of those before (`renew_shuffles`). All other data are the same in each.
    """

    dataset: Dataset
    cluster: Cluster
    reads_ahead: bool  # or no more than in one process, e.g. of a generator
    comparison: RowComparison | None = None  # with the first batches of other tasks
    division_rows: int | None = None  # of a pass, if they were counted
    idle: int | None = None  # steps without a batch, if this task has batches of its own
    renews: bool = False  # whether iterators may end before the data, which shuffle and repeat
    repeats: bool = False  # whether an iterator reads one pass after the other, without end
    identity: str = ""  # checksum or number, if each row is to have one for an audit
    static_rows: int | None = None  # of each replica and step, if they must be known

    def __post_init__(self) -> None:
        chain = chain_of(self.dataset) if self.renews and self.cluster.role.num_workers > 1 else ()
        self._shuffles = [each for each in chain if type(each).__name__ == "_ShuffleDataset"]
        self.division = self._divide(None)
        if self.division:
            self.comparison = None
        self.batches = self._stream(self._one_pass(self.division, self.dataset))

    @property
    def spec(self) -> Any:
        """The type of an element."""
        return self.batches.element_spec

    def iterator(self, skip: int = 0) -> Any:
        """Return an iterator, after the first batches."""
        parts = self.batches
        if self._shuffles:
            number = self._times_read()
            division = self.division and self._divide(number)
            dataset = self.dataset if division else _renewed(self.dataset, number)
            parts = self._stream(self._one_pass(division, dataset), skip)
        elif skip:
            parts = self._stream(self._one_pass(self.division, self.dataset), skip)
        return iter(on_devices(parts, self.cluster))

    def _divide(self, number: int | None) -> Divided | None:
        if self.idle is not None or self.cluster.role.num_workers == 1:
            return None
        return divide_work_of(self.dataset, self.cluster, self.division_rows, number)

    def _times_read(self) -> int:
        """Return how many iterators have read these data, or others of the same shuffles."""
        times: int = max(getattr(each, _TIMES_READ, 0) for each in self._shuffles)
        for each in self._shuffles:
            setattr(each, _TIMES_READ, times + 1)
        return times

    def _one_pass(self, division: Divided | None, dataset: Dataset) -> tuple[Dataset, int | None]:
        """Return the parts of a pass, and how many of them are read ahead."""
        cluster = self.cluster
        buffer: int | None = tf.data.AUTOTUNE
        if division:
            return divided_locally(division.parts, cluster.local_replicas), buffer
        if not self.reads_ahead:
            buffer = None
            if type(dataset).__name__ == "_PrefetchDataset":  # its own is last, as in one process
                # As many on all tasks: what is read ahead of an epoch's end is skipped.
                buffer = max(1, int(dataset._buffer_size))  # noqa: SLF001
                (dataset,) = dataset._inputs()  # noqa: SLF001
        dataset = with_one_order(dataset)
        if self.idle is not None:
            return own_parts(dataset, cluster.local_replicas, self.idle), buffer
        parts = divided(
            *(dataset, cluster.replicas, cluster.replica_ids, self.comparison),
            reads_ahead=self.reads_ahead,
        )
        return parts, buffer

    def _stream(self, one_pass: tuple[Dataset, int | None], skip: int = 0) -> Dataset:
        """Return what an iterator reads, after the first batches."""
        parts, buffer = one_pass
        if self.identity == "checksum":
            parts = with_checksums(parts)
        elif self.identity == "number":
            parts = with_numbers(parts, *self._places_of_rows())
        rest = parts.skip(skip * self.cluster.local_replicas) if skip else parts
        if self.repeats:
            rest = rest.concatenate(parts.repeat()) if skip else parts.repeat()
        rest = with_static_rows(rest, self.static_rows)
        if rest.cardinality() != tf.data.INFINITE_CARDINALITY:
            rest = with_end(rest)
        rest = with_one_order(rest)
        return rest if buffer is None else rest.prefetch(buffer)

    def _places_of_rows(self) -> tuple[Sequence[int], int]:
        """Return which row of a batch each local replica has first, and from which to which."""
        cluster = self.cluster
        if not self.division:
            return cluster.replica_ids, cluster.replicas
        rank, tasks = cluster.role.rank, cluster.role.num_workers
        return range(rank, rank + cluster.replicas, tasks), cluster.replicas


def _renewed(dataset: Dataset, number: int) -> Dataset:
    """Return a data set that may end early, with orders that do not depend on what was read."""
    try:
        graph = DatasetGraph(dataset)
    except (tf.errors.OpError, ValueError):  # of what TensorFlow has no graph
        return dataset
    return graph.dataset(dataset.element_spec) if graph.renew_shuffles(number) else dataset
