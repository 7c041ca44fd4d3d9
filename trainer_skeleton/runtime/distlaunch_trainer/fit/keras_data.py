"""The data of a script's call of ``fit``, ``evaluate`` or ``predict``: read as Keras reads them.

Every task iterates the script's data set as one process would, and takes the rows of its own
replicas. So the data set must yield the same batches on every task; a script that shards by itself
(``AutoShardPolicy.OFF``) or that has distributed its data set has batches of its own on each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer.batch_sharding import divided, divided_locally
from distlaunch_trainer.checkpoints import Progress
from distlaunch_trainer.cluster import Cluster
from distlaunch_trainer.errors import DataError
from distlaunch_trainer.pipeline import BatchForm, Reader, on_devices
from distlaunch_trainer.report import Report
from distlaunch_trainer.same_rows import DataFacts, RowComparison, check_equal, facts_of, suspects
from distlaunch_trainer.user_dataset import rows_in_batches, with_one_order
from distlaunch_trainer.work_division import divide_work_of

Dataset = tf.data.Dataset

_OFF = tf.data.experimental.AutoShardPolicy.OFF


@dataclass
class KerasData:
    """The batches of a call on this task.

    Attributes
    ----------
    adapter
        Keras's adapter of the data.
    batches
        This task's parts of the batches, of which each iterator reads one pass.
    form
        Their form.
    spec
        The type of a batch, as a model's steps get it; None if its shape is not known.
    num_batches
        Batches of a pass; None if that is not known.
    is_endless
        Whether there are always more.
    least_rows
        Rows that each batch has at least.
    only_last_differs
        Whether all batches of a pass but the last have more rows.
    comparison
        Compares the first batch with those of other tasks.
    dataset
        The script's, if all tasks have the same.
    can_be_shared
        Whether it can be read again, by parts.
    requested_steps
        The argument ``steps_per_epoch`` of ``fit``, or that of ``evaluate``.
    """

    adapter: Any
    batches: Iterable[Any]
    form: BatchForm
    spec: Any
    num_batches: int | None
    is_endless: bool = False
    least_rows: int = 0
    only_last_differs: bool = False
    comparison: RowComparison | None = None
    dataset: Dataset | None = None
    can_be_shared: bool = False
    requested_steps: int | None = None

    @property
    def steps(self) -> int | None:
        """The steps of an epoch; None if that is not known."""
        return self.requested_steps or self.num_batches

    def first_batch(self) -> Any:
        """Return the first batch of this task's first replica, to build a model with."""
        data = next(iter(self.batches))
        data = data if self.form == "whole" else data[0]
        return tf.nest.map_structure(_of_first_replica, data)

    @property
    def global_batch(self) -> int | None:
        """The rows of a batch; None if that is not known."""
        return None if self.form == "whole" else self.adapter.batch_size

    @property
    def examples(self) -> int | None:
        """The rows of arrays; None for other data."""
        return None if self.form == "whole" else array_rows(self.adapter)

    def reader(
        self,
        cluster: Cluster,
        progress: Progress | None = None,
        *,
        epochs: int | None = None,  # noqa: ARG002 - each pass has an iterator of its own
        steps: int | None = None,  # noqa: ARG002 - those of the call
    ) -> Reader:
        """Return a reader of the batches of this task, from where a run is."""
        return KerasReader(self, cluster, progress.position if progress else [])


class KerasReader(Reader):
    """Reads batches as Keras's ``EpochIterator``: its passes and iterators are the same.

    The orders of a data set that shuffles depend on the number of iterators made before: two per
    epoch where Keras knows the number of batches.

    Parameters
    ----------
    data
        The data.
    cluster
        The tasks.
    position
        Where to continue: iterators made, batches read of the last one (None if that has ended),
        and batches of a pass.
    """

    is_for_once = True

    def __init__(self, data: KerasData, cluster: Cluster, position: list[int | None]) -> None:
        data.adapter.on_epoch_end()  # as Keras does before the first epoch
        self.form = data.form
        self.iterator = None
        self._data = data
        self._replicas = cluster.replicas
        self._is_single = cluster.local_replicas == 1
        self._requested = data.requested_steps
        self._step = 0
        self._iterators = 0
        self._read: int | None = None  # of the iterator, before this epoch
        self._has_ended = False
        iterators, read, self._num_batches = position or (0, None, data.num_batches)
        while self._iterators < (iterators or 0):
            self._open()  # reads nothing
        if read is None:
            self.iterator = None
        self._read = self._skipped = read

    def begin(self, step: int, done: int = 0) -> None:
        """Begin to read an epoch before which `step` steps were done, and of it `done` more."""
        self._step = step
        self._data.adapter.on_epoch_begin()
        if self.iterator is None or (self._requested is None and not done):
            self._open()
        for _ in range((self._skipped or 0) + done):
            next(self.iterator, None)
        self._skipped = 0

    @property
    def steps(self) -> int | None:
        """The steps of this epoch; None if only reading shows it."""
        if self._num_batches is None:
            return self._requested
        left = self._num_batches - (self._read or 0)
        return left if self._requested is None else min(self._requested, left)

    @property
    def may_end_early(self) -> bool:
        """Whether there may be fewer."""
        return self._data.num_batches is None and not self._data.is_endless

    def end(self, steps: int) -> None:
        """End an epoch after some steps."""
        self._read = (self._read or 0) + steps
        is_short = steps < (self._requested or 0)
        if self._has_ended:
            self._num_batches = self._num_batches or self._read
            self.iterator, self._has_ended = None, False
        elif self._num_batches is not None and self._read >= self._num_batches:
            self._open()
        else:
            is_short = False  # a callback has ended the training
        if is_short:
            warnings.warn(
                f"the data had {steps} batches for the {self._requested} steps of an epoch: end "
                "them with .repeat(), or lower steps_per_epoch",
                stacklevel=2,
            )
        self._data.adapter.on_epoch_end()

    def next_batch(self) -> Any:
        """Return the next batch of this task; None at the end."""
        if self._is_single and self.form != "whole":
            batch = self.iterator.get_next_as_optional()
            found = batch if batch.has_value() else None
        else:
            found = next(self.iterator, None)
        self._has_ended = found is None
        return found

    def has_empty_replicas(self, step: int) -> bool:
        """Return whether some replica may have no row in a step of this epoch."""
        if self._replicas == 1:
            return False
        if self.form != "divided":
            return True
        if self._data.least_rows >= self._replicas:
            return False
        position = (self._read or 0) + step - self._step
        is_last = self._num_batches is None or position == self._num_batches - 1
        return is_last or not self._data.only_last_differs

    @property
    def position(self) -> list[int | None]:
        """Iterators made, batches read of the last one, and batches of a pass."""
        return [self._iterators, None if self.iterator is None else self._read, self._num_batches]

    def _open(self) -> None:
        self.iterator = iter(self._data.batches)
        self._iterators += 1
        self._read = self._skipped = 0


@dataclass(frozen=True)
class Caller:
    """The call that reads data, for messages and exchanges.

    Attributes
    ----------
    cluster, report
        The tasks, and where to report.
    call
        ``fit() (train.py, line 30)``.
    gathers_rows
        Whether its results are the rows of all tasks, as those of ``predict``.
    """

    cluster: Cluster
    report: Report
    call: str
    gathers_rows: bool = False


def open_data(adapter: Any, steps: int | None, caller: Caller) -> KerasData:
    """Return the data of a call; all tasks make it together.

    Parameters
    ----------
    adapter
        Keras's adapter of the data.
    steps
        The argument ``steps_per_epoch`` of ``fit``, or that of ``evaluate``.
    caller
        The call.

    Raises
    ------
    DataError
        If the data differ between the tasks, and the script does not shard them itself.
    """
    dataset = adapter.get_tf_dataset()
    most = keras.config.max_steps_per_epoch()  # for debugging
    steps = min(filter(None, (steps, most)), default=None)
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
        given = cluster.rendezvous.exchange("data", asdict(facts), f"to read {what}")
        of_tasks = [DataFacts(**each) for each in given]
        if is_off and len({(each.batches, each.sources) for each in of_tasks}) > 1:
            return _of_each_task(data, dataset, caller, [each.batches for each in of_tasks])
        check_equal(of_tasks, cluster.role.peers, what)
        if division := divide_work_of(dataset, cluster):
            caller.report.log(division.describe())
            parts = divided_locally(division.parts, cluster.local_replicas)
            data.batches = on_devices(parts.prefetch(tf.data.AUTOTUNE), cluster)
            return data
        data.comparison = RowComparison(cluster.rendezvous, caller.report.warn, facts, what)
    parts = _prefetched(
        dataset,
        lambda batches, options: divided(
            batches, cluster.replicas, cluster.replica_ids, data.comparison, **options
        ),
        reads_ahead=not facts.is_python,
    )
    data.batches = on_devices(parts, cluster)
    return data


def _of_first_replica(value: Any) -> Any:
    return value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value


def array_rows(adapter: Any) -> int | None:
    """Return the rows of arrays, None for other data."""
    if _has_partial_batch(adapter) is None or adapter.num_batches is None:
        return None
    missing = adapter.batch_size - (adapter.partial_batch_size or adapter.batch_size)
    return int(adapter.num_batches * adapter.batch_size - missing)


def _sizes(adapter: Any, dataset: Dataset) -> tuple[bool, int, bool]:
    """Return whether there is no end, the least rows of a batch, and if only the last has them."""
    is_endless = bool(dataset.cardinality() == tf.data.INFINITE_CARDINALITY)
    if _has_partial_batch(adapter) is not None:
        return is_endless, adapter.partial_batch_size or adapter.batch_size or 0, True
    known = None if adapter.batch_size else rows_in_batches(dataset)
    if known is None:
        return is_endless, adapter.batch_size or 0, False
    rows, size = known
    is_counted = adapter.num_batches == -(-rows // size)
    return is_endless, (rows - 1) % size + 1 if is_counted else 0, True


def _has_partial_batch(adapter: Any) -> bool | None:
    """Return whether the last batch is smaller, None if that is not known."""
    try:
        return adapter.has_partial_batch
    except NotImplementedError:  # generators and PyDatasets
        return None


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
    data: KerasData, dataset: Dataset, caller: Caller, counts: list[int]
) -> KerasData:
    """Return the batches of a script that shards by itself, with as many steps on all tasks."""
    role, report = caller.cluster.role, caller.report
    peers, what = role.peers, f"the data of {caller.call}"
    if caller.gathers_rows:
        raise DataError(
            f"{what} differ between the tasks, and predict() returns the rows of all tasks: give "
            f"all tasks the same data{suspects()}"
        )
    if any(count == tf.data.UNKNOWN_CARDINALITY for count in counts):
        report.log(f"reading {what} to count its batches")
        own = int(dataset.reduce(tf.constant(0, tf.int64), lambda count, *_: count + 1))
        counts = caller.cluster.rendezvous.exchange("batches", own, f"to count {what}")
    shortest, longest = min(counts), max(counts)
    by_task = ", ".join(f"{peer} {n:,}" for peer, n in zip(peers, counts, strict=True))
    if shortest != longest and shortest <= 0:
        raise DataError(f"{what} have no batches, or no end, on some tasks only: {by_task}")
    report.log(
        f"{what}: each task has its own, as auto_shard_policy is OFF ({by_task} batches); a step "
        "trains on one batch of every task"
    )
    idle = longest - counts[role.rank] if longest > 0 else 0
    if shortest != longest:
        report.warn(
            f"{what}: {peers[counts.index(shortest)]} is idle in {longest - shortest:,} of the "
            f"{longest:,} steps"
        )
    local = caller.cluster.local_replicas
    parts = divided(dataset, local, range(local)).map(lambda data, rows, _: (data, rows))
    if idle:
        empty = parts.take(local).map(lambda data, rows: (data, tf.zeros_like(rows)))
        parts = parts.concatenate(empty.repeat(idle))
    data.batches, data.form = on_devices(parts.prefetch(1), caller.cluster), "own"
    data.num_batches = longest if longest > 0 else None
    return data
