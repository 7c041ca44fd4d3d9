"""The parts of a user's batches that belong to a task, as its iterators read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.input.batches import on_devices, with_static_rows

from .batch_sharding import divided, divided_locally, own_parts, with_end
from .dataset_graph import DatasetGraph
from .row_identity import with_checksums, with_numbers
from .same_rows import RowComparison, chain_of
from .user_dataset import with_one_order
from .work_division import Divided, divide_work_of

Dataset = tf.data.Dataset

_TIMES_READ = "_distlaunch_times_read"  # an attribute of shuffles


class TaskParts:
    """The parts of a data set that belong to this task, of which each iterator reads one pass.

    Of a data set that repeats shuffled elements and may end early, the orders of an iterator depend
    on the number of those before (`renew_shuffles`). All other data are the same in each.
    """

    def __init__(
        self,
        dataset: Dataset,
        cluster: Cluster,
        *,
        reads_ahead: bool,  # or no more than in one process, e.g. of a generator
        comparison: RowComparison | None = None,  # with the first batches of other tasks
        division_rows: int | None = None,  # of a pass, if they were counted
        idle: int | None = None,  # steps without a batch, if this task has batches of its own
        renews: bool = False,  # whether iterators may end before the data, which shuffle and repeat
        repeats: bool = False,  # whether an iterator reads one pass after the other, without end
        prefetch: int = tf.data.AUTOTUNE,
        identity: str = "",  # checksum or number, if each row is to have one for an audit
        static_rows: int | None = None,  # of each replica and step, if they must be known
    ) -> None:
        self._dataset = dataset
        self._cluster = cluster
        self._reads_ahead = reads_ahead
        self._comparison = comparison
        self._division_rows = division_rows
        self._idle = idle
        self._repeats = repeats
        self._prefetch = prefetch
        self._identity = identity
        self._static_rows = static_rows
        chain = chain_of(dataset)
        shuffles = [each for each in chain if type(each).__name__ == "_ShuffleDataset"]
        self._shuffles = shuffles if renews and cluster.role.num_workers > 1 else []
        self.division = self._divide(None)
        if self.division:
            self._comparison = None
        self._parts = self._stream(self._one_pass(self.division, dataset))

    @property
    def spec(self) -> Any:
        """The type of an element."""
        return self._parts.element_spec

    def iterator(self, skip: int = 0) -> Any:
        """Return an iterator, after the first batches."""
        parts = self._parts
        if self._shuffles:
            number = self._times_read()
            division = self.division and self._divide(number)
            dataset = self._dataset if division else _renewed(self._dataset, number)
            parts = self._stream(self._one_pass(division, dataset), skip)
        elif skip:
            parts = self._stream(self._one_pass(self.division, self._dataset), skip)
        return iter(on_devices(parts, self._cluster))

    def _divide(self, number: int | None) -> Divided | None:
        if self._idle is not None or self._cluster.role.num_workers == 1:
            return None
        return divide_work_of(self._dataset, self._cluster, self._division_rows, number)

    def _times_read(self) -> int:
        """Return how many iterators have read these data, or others of the same shuffles."""
        times: int = max(getattr(each, _TIMES_READ, 0) for each in self._shuffles)
        for each in self._shuffles:
            setattr(each, _TIMES_READ, times + 1)
        return times

    def _one_pass(self, division: Divided | None, dataset: Dataset) -> tuple[Dataset, int | None]:
        """Return the parts of a pass, and how many of them are read ahead."""
        cluster, buffer = self._cluster, self._prefetch
        if division:
            return divided_locally(division.parts, cluster.local_replicas), buffer
        if not self._reads_ahead:
            buffer = None
            if type(dataset).__name__ == "_PrefetchDataset":  # its own is last, as in one process
                # As many on all tasks: what is read ahead of an epoch's end is skipped.
                buffer = max(1, int(dataset._buffer_size))  # noqa: SLF001
                (dataset,) = dataset._inputs()  # noqa: SLF001
        dataset = with_one_order(dataset)
        if self._idle is not None:
            return own_parts(dataset, cluster.local_replicas, self._idle), buffer
        parts = divided(
            *(dataset, cluster.replicas, cluster.replica_ids, self._comparison),
            reads_ahead=self._reads_ahead,
        )
        return parts, buffer

    def _stream(self, one_pass: tuple[Dataset, int | None], skip: int = 0) -> Dataset:
        """Return what an iterator reads, after the first batches."""
        parts, buffer = one_pass
        if self._identity == "checksum":
            parts = with_checksums(parts)
        elif self._identity == "number":
            parts = with_numbers(parts, *self._places_of_rows())
        rest = parts.skip(skip * self._cluster.local_replicas) if skip else parts
        if self._repeats:
            rest = rest.concatenate(parts.repeat()) if skip else parts.repeat()
        rest = with_static_rows(rest, self._static_rows)
        if rest.cardinality() != tf.data.INFINITE_CARDINALITY:
            rest = with_end(rest)
        rest = with_one_order(rest)
        return rest if buffer is None else rest.prefetch(buffer)

    def _places_of_rows(self) -> tuple[Sequence[int], int]:
        """Return which row of a batch each local replica has first, and from which to which."""
        cluster = self._cluster
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
