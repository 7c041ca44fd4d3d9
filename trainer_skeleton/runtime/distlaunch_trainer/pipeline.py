"""The plan and the index made into a ``tf.data`` pipeline.

A replica's stream is built from its shards alone. Each shard is cut into *windows* of consecutive
records; an epoch takes the windows in a seeded order, enters the file at each window's byte offset
and takes the records inside in a seeded order too. So the order of an epoch is a function of (seed,
pass, shard, window): a resumed run enters in the middle without reading what was read before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import tensorflow as tf

from .cluster import Cluster
from .plan import Plan, SharedBatchPlan, UnevenBatchPlan
from .sources import ArrayItems, RecordItems

Dataset = tf.data.Dataset

_POOL_BYTES = 256 << 20
_BUFFER_BYTES = (4 << 10, 256 << 10)

Items = ArrayItems | RecordItems


@dataclass(frozen=True)
class Order:
    """In which order a pass takes the examples.

    Attributes
    ----------
    seed
        The seed of the job.
    pool
        Examples to shuffle among, over all shards together; 0 keeps the order of the files.
    """

    seed: int = 0
    pool: int = 0


class Batches(ABC):
    """The batches of one task, for all of its replicas, from any step on, without an end.

    Each element is ``(data, rows, global_rows)``: the data with a batch dimension; the replica's
    rows in this step; all replicas' rows in this step. Where a replica has no row in a step, its
    batch holds one row and ``rows`` is 0. For an audit something comes last that identifies the
    examples.
    """

    def batches(self, cluster: Cluster, first_step: int = 0, last_step: int | None = None) -> Any:
        """Return an iterator over the batches of ``cluster``'s own replicas."""
        if cluster.local_replicas == 1:
            return iter(self.dataset(cluster.replica_ids, first_step, last_step))
        return iter(
            cluster.strategy.distribute_datasets_from_function(
                lambda _: self.dataset(cluster.replica_ids, first_step, last_step)
            )
        )

    @tf.autograph.experimental.do_not_convert  # nothing to convert, and looking takes 0.6 s
    def dataset(
        self, replicas: range, first_step: int = 0, last_step: int | None = None
    ) -> Dataset:
        """Return the batches of ``replicas`` in turn, from global step ``first_step`` on.

        Nothing is read ahead beyond ``last_step``.
        """
        stream = self._stream(replicas, first_step)
        if last_step is not None:
            stream = stream.take((last_step - first_step) * len(replicas))
        # No more is ever requested, and TensorFlow need not check whether there is more.
        endless = stream.apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        return endless.prefetch(tf.data.AUTOTUNE)

    def find_bad_record(self, replicas: range) -> str | None:  # noqa: ARG002
        """Return which record of the replicas' cannot be read or parsed, and why.

        None if there is none, or if only the user's own code knows the records.
        """
        return None

    @abstractmethod
    def _stream(self, replicas: range, first_step: int) -> Dataset:
        """Return the batches of the replicas in turn, from a step on."""


class Pipeline(Batches):
    """The batches of records or arrays that a plan deals out.

    Parameters
    ----------
    items
        The examples.
    plan, order
        Who gets which, and in which order.
    """

    def __init__(self, items: Items, plan: Plan, order: Order) -> None:
        self._items = items
        self._plan = plan
        self._order = order
        compressed = isinstance(items, RecordItems) and items.compressed
        self._stream_shuffle = compressed and order.pool > 0
        self._window = self._window_size(compressed)
        # Small beside a window, as the last buffer read of one reaches into the next.
        self._buffer_bytes = int(np.clip(self._window * items.item_bytes // 32, *_BUFFER_BYTES))

    def _window_size(self, compressed: bool) -> int:
        """Return the records of a window; the same on every cluster, as the order depends on it."""
        longest = -(-self._plan.examples // self._plan.shards)
        if compressed or not self._order.pool:
            return longest
        fitting = _POOL_BYTES // (self._plan.shards * max(1, self._items.item_bytes))
        return max(1, min(longest, fitting, -(-self._order.pool // self._plan.shards)))

    def find_bad_record(self, replicas: range) -> str | None:
        """Return which record of the replicas' cannot be read or parsed, and why, if one can't."""
        shards = [
            self._plan.shard_bounds(shard)
            for replica in replicas
            for shard in self._plan.shards_of(replica)
        ]
        problems = (self._items.culprit(*bounds) for bounds in shards)
        return next(filter(None, problems), None)

    def _stream(self, replicas: range, first_step: int) -> Dataset:
        """Return the batches of the replicas in turn, from a step on."""
        streams = [self._replica_stream(replica, first_step) for replica in replicas]
        if len(streams) == 1:
            return streams[0]
        return Dataset.choose_from_datasets(streams, Dataset.range(len(streams)).repeat())

    def _replica_stream(self, replica: int, first_step: int) -> Dataset:
        """Return the batches of one replica: the rest of the pass under way, then all others."""
        number, step = divmod(first_step, self._plan.steps)
        left = self._one_pass(tf.constant(number, tf.int64), replica, step) if step else None
        whole = Dataset.range(number + (step > 0), 1 << 62).flat_map(
            lambda number: self._one_pass(number, replica, 0)
        )
        stream = left.concatenate(whole) if left else whole
        return stream.map(self._numbers_last) if self._items.numbered else stream

    def _one_pass(self, number: tf.Tensor, replica: int, step: int) -> Dataset:
        """Return the batches of one pass over the data, from ``step`` on."""
        items = self._pass_items(number, replica, step)
        batches = self._items.parsed(items, lambda rows: self._batched(rows, replica, step))
        if self._plan.rows(self._plan.steps - 1, replica):
            return batches
        row = self._pass_items(number, replica, 0).take(1)
        padding = self._items.parsed(
            row, lambda rows: rows.batch(1).enumerate().map(self._without_rows)
        )
        return batches.concatenate(padding)

    def _without_rows(self, _: tf.Tensor, data: Any) -> tuple[Any, ...]:
        return data, *self._sizes(0, self._plan.steps - 1)

    def _numbers_last(self, numbered: Any, rows: tf.Tensor, total: tf.Tensor) -> tuple[Any, ...]:
        data, numbers = numbered
        return data, rows, total, numbers

    def _sizes(self, rows: Any, step: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a replica's rows and all replicas' rows in ``step`` of a pass."""
        left = self._plan.examples - tf.cast(step, tf.int64) * self._plan.global_batch
        batch = tf.constant(self._plan.global_batch, tf.int64)
        return tf.cast(rows, tf.int64), tf.minimum(batch, left)

    def _batched(self, items: Dataset, replica: int, step: int) -> Dataset:
        """Cut a replica's items from ``step`` on into its rows of each step."""
        plan = self._plan
        chunks = items.batch(plan.period_rows).enumerate()

        def one_step(number: tf.Tensor, data: Any) -> tuple[Any, ...]:
            rows = tf.shape(tf.nest.flatten(data)[0])[0]
            return data, *self._sizes(rows, step + number)

        if plan.period == 1:
            return chunks.map(one_step)
        return chunks.flat_map(lambda number, data: self._period(number, data, replica, step))

    def _period(self, number: tf.Tensor, data: Any, replica: int, step: int) -> Dataset:
        """Cut one period of a replica's rows, which are not equally many in each step."""
        plan = self._plan
        first = step + number * plan.period
        steps = first + tf.range(plan.period + 1, dtype=tf.int64)
        positions = tf.minimum(steps * plan.global_batch, plan.examples)
        cuts = (positions - replica + plan.replicas - 1) // plan.replicas
        cuts -= cuts[0]

        def cut(at: tf.Tensor) -> tuple[Any, ...]:
            part = tf.nest.map_structure(lambda array: array[cuts[at] : cuts[at + 1]], data)
            return part, *self._sizes(cuts[at + 1] - cuts[at], first + at)

        filled = tf.reduce_sum(tf.cast(cuts[1:] > cuts[:-1], tf.int64))
        return Dataset.range(filled).map(cut)

    def _pass_items(self, number: tf.Tensor, replica: int, step: int) -> Dataset:
        """Return the items of a replica's shards, one of each in turn, from ``step`` on.

        Shards differ by one item at most, and in the order of positions those that have one item
        fewer come last: taking them in turn from the next position's shard on keeps that order.
        """
        table = self._shard_table(replica, step)
        windows = _WindowTable(self._items, [window for row in table for window in row.windows])

        def shard_items(
            shard: tf.Tensor, first: tf.Tensor, full: tf.Tensor, total: tf.Tensor, done: tf.Tensor
        ) -> Dataset:
            # A short last window stays last, so that `done` gives the window to enter.
            order = tf.concat([self._shuffled(full, number, shard), tf.range(full, total)], 0)
            enter, skip = done // self._window, done % self._window
            return (
                Dataset.from_tensor_slices(order[enter:])
                .flat_map(
                    lambda window: self._mixed(
                        windows.items(first + window, self._buffer_bytes), number, shard, window
                    )
                )
                .skip(skip)
            )

        firsts = accumulate((len(row.windows) for row in table), initial=0)
        rows = [
            (row.shard, first, row.full, len(row.windows), row.done)
            for row, first in zip(table, firsts, strict=False)
        ]
        columns = tuple(tf.constant(column, tf.int64) for column in zip(*rows, strict=True))
        shards = Dataset.from_tensor_slices(columns)
        return shards.interleave(shard_items, cycle_length=len(rows), block_length=1)

    def _shard_table(self, replica: int, step: int) -> list[_ShardRow]:
        """Return a replica's shards that hold examples, the one of the next position first."""
        plan = self._plan
        rows = []
        for shard in plan.shards_of(replica):
            start, stop = plan.shard_bounds(shard)
            windows = [
                (at, min(at + self._window, stop)) for at in range(start, stop, self._window)
            ]
            full = (stop - start) // self._window
            done = plan.done_in_shard(shard, step)
            rows.append(_ShardRow(shard, windows, full, done))
        rows.sort(key=lambda row: plan.position_of(row.shard, row.done))
        return [row for row in rows if row.windows]

    def _shuffled(self, count: Any, *place: Any) -> tf.Tensor:
        """Return 0 ... count-1, in an order that ``place`` decides where there is a pool."""
        if not self._order.pool:
            return tf.range(tf.cast(count, tf.int64))
        keys = tf.random.stateless_uniform([count], self._seed(*place))
        return tf.cast(tf.argsort(keys, stable=True), tf.int64)

    def _seed(self, *place: Any) -> tf.Tensor:
        """Mix the seed of the job and a place in the data into a seed of two numbers."""
        seed = tf.constant([self._order.seed, len(place)], tf.int64)
        for part in place:
            seed = tf.random.experimental.stateless_fold_in(seed, tf.cast(part, tf.int64))
        return seed

    def _mixed(self, items: Dataset, *place: Any) -> Dataset:
        """Return a window's items in the order that ``place`` decides."""
        if not self._order.pool:
            return items
        if self._stream_shuffle:
            pool = max(1, -(-self._order.pool // self._plan.shards))
            seed = self._seed(*place)[0]
            return items.shuffle(pool, seed=seed, reshuffle_each_iteration=False)
        return items.batch(self._window).flat_map(lambda *batch: self._reordered(batch, *place))

    def _reordered(self, batch: tuple[tf.Tensor, ...], *place: Any) -> Dataset:
        order = self._shuffled(tf.shape(batch[0])[0], *place)
        parts = tuple(tf.gather(part, order) for part in batch)
        return Dataset.from_tensor_slices(parts if len(parts) > 1 else parts[0])


@dataclass(frozen=True)
class _ShardRow:
    """What a pass needs to know of one shard: its windows, how many are full, the items done."""

    shard: int
    windows: list[tuple[int, int]]
    full: int
    done: int


class _WindowTable:
    """Where the items of numbered windows lie."""

    def __init__(self, items: Items, windows: list[tuple[int, int]]) -> None:
        segments = [items.between(start, stop) for start, stop in windows]
        columns = np.array([segment for window in segments for segment in window], np.int64).T
        self._items = items
        self._columns = [tf.constant(column) for column in columns]
        self._bounds = tf.constant([0, *accumulate(len(window) for window in segments)], tf.int64)

    def items(self, window: tf.Tensor, buffer_bytes: int) -> Dataset:
        """Return a window's items, in the order of the data."""
        # One scalar a column: taken from a row with tf.unstack they crash TensorFlow 2.21.
        return Dataset.range(self._bounds[window], self._bounds[window + 1]).flat_map(
            lambda at: self._items.read(buffer_bytes, *(column[at] for column in self._columns))
        )


@dataclass(frozen=True)
class Data:
    """Batches, how they are sharded, and the source that they are read from."""

    pipeline: Batches
    plan: Plan | SharedBatchPlan | UnevenBatchPlan
    source: dict[str, Any]

    def describe(self, examples: int | None = None) -> dict[str, Any]:
        """Return what ``summary.json`` records of the data.

        ``examples`` is the number of examples where only the training has shown it.
        """
        return {**self.source, "examples": self.plan.examples or examples}
