"""The data of a script's call: opened as Keras opens them, and divided among the tasks.

Every task iterates the script's data set as one process would, and takes the rows of its own
replicas. So the data set must yield the same batches on every task; a script that shards by itself
(``AutoShardPolicy.OFF``) or that has distributed its data set has batches of its own on each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.batches import on_devices
from distlaunch_trainer.input.user_data.batch_sharding import divided, divided_locally, own_parts
from distlaunch_trainer.input.user_data.dataset_graph import DatasetGraph
from distlaunch_trainer.input.user_data.same_rows import (
    DataFacts,
    RowComparison,
    chain_of,
    check_equal,
    facts_of,
    gather_facts,
    suspects,
)
from distlaunch_trainer.input.user_data.shard_policy import count_task_batches
from distlaunch_trainer.input.user_data.user_dataset import batch_end, with_one_order
from distlaunch_trainer.input.user_data.work_division import Divided, divide_work_of
from distlaunch_trainer.keras_compat import fit_calls
from distlaunch_trainer.report.report import Report

from .keras_data import KerasData, array_rows, has_partial_batch

Dataset = tf.data.Dataset

_TIMES_READ = "_distlaunch_times_read"  # an attribute of shuffles
_OFF = tf.data.experimental.AutoShardPolicy.OFF


@dataclass(frozen=True)
class Caller:
    """The call that reads data, for messages and exchanges."""

    cluster: Cluster
    report: Report
    call: str  # fit() (train.py, line 30)
    gathers_rows: bool = False  # whether its results are the rows of all tasks, as of predict()


def open_data(caller: Caller, *arrays: Any, **options: Any) -> KerasData:
    """Return the data of a call, which all tasks make together, as Keras takes its arguments.

    They must be the same on all tasks, unless the script shards them itself.
    """
    adapter = fit_calls.data_adapter(*arrays, **options)
    dataset = adapter.get_tf_dataset()
    most = keras.config.max_steps_per_epoch()  # for debugging
    steps = min(filter(None, (options.get("steps_per_epoch"), most)), default=None)
    if isinstance(dataset, tf.distribute.DistributedDataset):
        return replace(_of_each_replica(adapter, dataset, caller), requested_steps=steps)
    cluster, spec = caller.cluster, _data_spec(dataset)
    facts = facts_of(dataset)
    if array_rows(adapter) is not None:  # Keras's functions that read them draw the same on all
        facts = replace(facts, is_python=False, is_random=False)
    data = KerasData(adapter, (), "divided", spec, adapter.num_batches, *_sizes(adapter, dataset))
    data.dataset, data.requested_steps = dataset, steps
    data.can_be_shared = not facts.is_python and not steps
    what = f"the data of {caller.call}"
    if cluster.role.num_workers > 1:
        is_off = dataset.options().experimental_distribute.auto_shard_policy == _OFF
        of_tasks = gather_facts(facts, cluster.rendezvous, what)
        if is_off and len({(each.length, each.sources) for each in of_tasks}) > 1:
            return _of_each_task(data, dataset, caller, of_tasks)
        check_equal(of_tasks, cluster.role.peers, what)
    batches = _Batches(dataset, data, facts, caller)
    data.batches = batches if batches.are_renewed else batches.parts
    return data


@contextmanager
def compared(*data: KerasData | None) -> Iterator[None]:
    """Name the rows that differ between the tasks, if reading fails for that."""
    try:
        yield
    except tf.errors.OpError as error:
        for comparison in (each.comparison for each in data if each):
            if comparison and comparison.problem:
                raise DataError(comparison.problem) from error
        raise


class _Batches:
    """The parts of a data set that belong to this task, of which each iterator reads one pass.

    Of a data set that repeats shuffled elements and may end early, the orders of an iterator depend
    on the number of those before (`renew_shuffles`). All other data are `parts` themselves.
    """

    def __init__(self, dataset: Dataset, data: KerasData, facts: DataFacts, caller: Caller) -> None:
        self._dataset = dataset
        self._cluster = cluster = caller.cluster
        self._reads_ahead = not facts.is_python
        self._comparison: RowComparison | None = None
        self._division: Divided | None = None
        chain = chain_of(dataset)
        self._shuffles = [each for each in chain if type(each).__name__ == "_ShuffleDataset"]
        self.are_renewed = False
        if cluster.role.num_workers > 1:
            self.are_renewed = bool(self._shuffles and (data.requested_steps or data.is_endless))
            self._division = divide_work_of(dataset, cluster)
            if self._division:
                caller.report.log(self._division.log_line)
            else:
                what = f"the data of {caller.call}"
                compared = cluster.rendezvous, caller.report.warn, facts, what
                data.comparison = self._comparison = RowComparison(*compared)
        self.parts = self._of_task(dataset, self._division)

    def __iter__(self) -> Iterator[Any]:
        number = self._times_read()
        if self._division:
            division = divide_work_of(self._dataset, self._cluster, renewed=number)
            return iter(self._of_task(self._dataset, division))
        return iter(self._of_task(_renewed(self._dataset, number), None))

    def _times_read(self) -> int:
        """Return how many iterators have read these data, or others of the same shuffles."""
        times: int = max(getattr(each, _TIMES_READ, 0) for each in self._shuffles)
        for each in self._shuffles:
            setattr(each, _TIMES_READ, times + 1)
        return times

    def _of_task(self, dataset: Dataset, division: Divided | None) -> Iterable[Any]:
        cluster = self._cluster
        if division:
            parts = divided_locally(division.parts, cluster.local_replicas)
            return on_devices(parts.prefetch(tf.data.AUTOTUNE), cluster)
        parts = _prefetched(
            dataset,
            lambda batches, options: divided(
                batches, cluster.replicas, cluster.replica_ids, self._comparison, **options
            ),
            reads_ahead=self._reads_ahead,
        )
        return on_devices(parts, cluster)


def _renewed(dataset: Dataset, number: int) -> Dataset:
    """Return a data set that may end early, with orders that do not depend on what was read."""
    try:
        graph = DatasetGraph(dataset)
    except (tf.errors.OpError, ValueError):  # of what TensorFlow has no graph
        return dataset
    return graph.dataset(dataset.element_spec) if graph.renew_shuffles(number) else dataset


def _sizes(adapter: Any, dataset: Dataset) -> tuple[bool, int, int]:
    """Return whether there is no end, the least rows of a batch, and those of all but the last."""
    is_endless = bool(dataset.cardinality() == tf.data.INFINITE_CARDINALITY)
    full: int = adapter.batch_size or 0
    if has_partial_batch(adapter) is not None:
        return is_endless, adapter.partial_batch_size or full, full
    known = None if full else batch_end(dataset)
    if known is None:
        return is_endless, full, 0
    rows, size, _ = known
    is_counted = adapter.num_batches == -(-rows // size)
    return is_endless, (rows - 1) % size + 1 if is_counted else 0, size


def _data_spec(dataset: Dataset) -> Any:
    """Return the type of a batch for Keras to build a model with, None if it has gaps."""
    spec = dataset.element_spec
    leaves = [leaf for leaf in tf.nest.flatten(spec) if not isinstance(leaf, tf.OptionalSpec)]
    if not all(hasattr(leaf, "shape") and leaf.shape.rank is not None for leaf in leaves):
        return None
    return tf.nest.map_structure(
        lambda leaf: None if isinstance(leaf, tf.OptionalSpec) else leaf, spec
    )


def _prefetched(
    dataset: Dataset, divide: Callable[[Dataset, dict[str, Any]], Dataset], *, reads_ahead: bool
) -> Dataset:
    """Return the parts that `divide` makes of batches, read ahead.

    Of a generator no more is read ahead than in one process, which would skip it.
    """
    if reads_ahead:
        parts = divide(dataset, {"num_parallel_calls": tf.data.AUTOTUNE})
        return with_one_order(parts.prefetch(tf.data.AUTOTUNE))
    buffer = None
    if type(dataset).__name__ == "_PrefetchDataset":  # its own comes last, as in one process
        buffer, (dataset,) = int(dataset._buffer_size), dataset._inputs()  # noqa: SLF001
    parts = with_one_order(divide(dataset, {"synchronous": True}))
    if buffer == tf.data.AUTOTUNE:
        buffer = 1  # as many on all tasks: what is read ahead of an epoch's end is skipped
    return parts if buffer is None else parts.prefetch(buffer)


def _of_each_replica(
    adapter: Any, dataset: tf.distribute.DistributedDataset, caller: Caller
) -> KerasData:
    """Return data that the script has distributed, of which each replica has its own.

    Epochs get the length of the longest part; tasks know only that of their own part.
    """
    if caller.gathers_rows:
        raise DataError(
            "predict() cannot order the rows of a distributed data set: give it the tf.data.Dataset"
        )
    exchange = caller.cluster.rendezvous.exchange
    counts = exchange("length", adapter.num_batches, f"to read the data of {caller.call}")
    longest = None if None in counts else max(counts)
    is_endless = int(dataset.cardinality) == tf.data.INFINITE_CARDINALITY
    return KerasData(adapter, dataset, "whole", None, longest, is_endless)


def _of_each_task(
    data: KerasData, dataset: Dataset, caller: Caller, of_tasks: list[DataFacts]
) -> KerasData:
    """Return the batches of a script that shards by itself, with as many steps on all tasks."""
    cluster, what = caller.cluster, f"the data of {caller.call}"
    if caller.gathers_rows:
        raise DataError(
            f"{what} differ between the tasks, and predict() returns the rows of all tasks: give "
            f"all tasks the same data{suspects()}"
        )
    counts = count_task_batches(
        dataset, of_tasks, cluster, caller.report, what=what, policy="auto_shard_policy"
    )
    longest = max(counts)
    idle = longest - counts[cluster.role.rank] if longest > 0 else 0
    parts = own_parts(dataset, cluster.local_replicas, idle)
    data.batches, data.form = on_devices(parts.prefetch(1), cluster), "own"
    data.num_batches = longest if longest > 0 else None
    return data
