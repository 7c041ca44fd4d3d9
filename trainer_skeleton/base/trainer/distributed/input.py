"""The plan and the index made into a ``tf.data`` pipeline.

A replica's stream is built from its shards alone. Each shard is cut into *windows* of consecutive
records; an epoch takes the windows in a seeded order, enters the file at each window's byte offset
and takes the records inside in a seeded order too. So the order of an epoch is a function of (seed,
pass, shard, window): a resumed run enters in the middle without reading what was read before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import tensorflow as tf

from .cluster import Team
from .errors import DataError, gist
from .index import FileIndex, index_files
from .plan import Plan

Dataset = tf.data.Dataset

_POOL_BYTES = 256 << 20
_BUFFER_BYTES = (4 << 10, 256 << 10)


@dataclass(frozen=True)
class Records:
    """Examples in TFRecord files (plain or GZIP).

    Parameters
    ----------
    pattern
        Glob of the files: a local path, ``/gcs/BUCKET/...`` or ``gs://BUCKET/...``.
    parse
        From one serialized record (scalar string tensor) to ``(x, y)`` or
        ``(x, y, sample_weight)``, without a batch dimension.
    parse_batch
        Instead of ``parse``: from a vector of records to the same with a batch dimension; faster
        where TensorFlow's operations take vectors, as ``tf.io.parse_example`` does.
    """

    pattern: str
    parse: Callable[[tf.Tensor], Any] | None = None
    parse_batch: Callable[[tf.Tensor], Any] | None = None

    def __post_init__(self) -> None:
        if (self.parse is None) == (self.parse_batch is None):
            raise DataError("Records takes one of parse= and parse_batch=: see trainer/data.py")

    def open(self, team: Team, fallback_dir: str) -> RecordItems:
        """Index the files; a collective."""
        return RecordItems(self, index_files(self.pattern, team, fallback_dir))


@dataclass(frozen=True)
class Arrays:
    """Examples in memory: arrays, or structures of arrays, of the same length.

    Parameters
    ----------
    x, y, sample_weight
        What ``model.fit`` would take; the first dimension of each array counts the examples.
    """

    x: Any
    y: Any = None
    sample_weight: Any = None

    def __post_init__(self) -> None:
        for name, part in vars(self).items():
            if isinstance(part, list):
                raise DataError(
                    f"Arrays takes arrays, and {name} is a list: "
                    f"give np.asarray({name}), see trainer/data.py"
                )
        if self.y is None and self.sample_weight is not None:
            raise DataError("Arrays with sample_weight need y: see trainer/data.py")

    def open(self, team: Team, fallback_dir: str) -> ArrayItems:  # noqa: ARG002
        """Check that all arrays have one length, on all tasks."""
        items = ArrayItems(self)
        if not team.all_equal(items.examples):
            raise DataError(
                f"the arrays do not have the same length on all tasks ({team.role.name} has "
                f"{items.examples:,}): give every task the whole data, see trainer/data.py"
            )
        return items


class ArrayItems:
    """The items of `Arrays` are the numbers of the examples."""

    spec = tf.TensorSpec([], tf.int64)

    def __init__(self, source: Arrays) -> None:
        given = (source.x, source.y, source.sample_weight)
        last = max(n for n, part in enumerate(given) if part is not None)
        self._data = tf.nest.map_structure(tf.convert_to_tensor, given[: last + 1])
        lengths = {len(array) for array in tf.nest.flatten(self._data) if array is not None}
        if len(lengths) > 1:
            raise DataError(f"the arrays differ in length: {sorted(lengths)}: see trainer/data.py")
        self.examples = lengths.pop()
        self.item_bytes = 8

    def between(self, start: int, stop: int) -> list[tuple[int, ...]]:
        """Return the segments that hold the examples ``start ... stop-1``."""
        return [(start, stop)]

    def read(self, buffer_bytes: int, start: tf.Tensor, stop: tf.Tensor) -> Dataset:  # noqa: ARG002
        """Return the items of a segment."""
        return Dataset.range(start, stop)

    def parsed(self, items: Dataset, batched: Callable[[Dataset], Dataset]) -> Dataset:
        """Return batches of examples."""

        def pick(numbers: tf.Tensor, *rest: tf.Tensor) -> tuple[Any, ...]:
            return tf.nest.map_structure(lambda a: tf.gather(a, numbers), self._data), *rest

        return batched(items).map(pick, num_parallel_calls=tf.data.AUTOTUNE)

    def culprit(self, start: int, stop: int) -> str | None:  # noqa: ARG002
        """Arrays have no damaged records."""
        return None


class RecordItems:
    """The items of `Records` are serialized records."""

    spec = tf.TensorSpec([], tf.string)

    def __init__(self, source: Records, files: list[FileIndex]) -> None:
        self._source = source
        self._files = files
        self._ends = list(accumulate(file.records for file in files))
        self.examples = self._ends[-1]
        self.item_bytes = sum(file.size for file in files) // max(1, self.examples)
        self._paths = tf.constant([file.path for file in files])
        self._compressions = tf.constant([file.compression for file in files])

    @property
    def compressed(self) -> bool:
        """Whether some file can only be read from its beginning."""
        return any(file.compression for file in self._files)

    def between(self, start: int, stop: int) -> list[tuple[int, ...]]:
        """Return segments (file, byte offset, records to skip, records) of these examples."""
        segments = []
        number = bisect_right(self._ends, start)
        while start < stop:
            first = self._ends[number] - self._files[number].records
            end = min(stop, self._ends[number])
            if end > start:
                segments.append((number, *self._files[number].entry(start - first), end - start))
            start, number = max(start, end), number + 1
        return segments

    def read(
        self,
        buffer_bytes: int,
        file: tf.Tensor,
        offset: tf.Tensor,
        skip: tf.Tensor,
        count: tf.Tensor,
    ) -> Dataset:
        """Return the records of a segment, entering its file at the byte offset."""
        # The public class has no byte offsets; the raw operation keeps them inside flat_map alone.
        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=[self._paths[file]],
            compression_type=self._compressions[file],
            buffer_size=buffer_bytes,
            byte_offsets=[offset],
        )
        return tf.data.experimental.from_variant(variant, self.spec).skip(skip).take(count)

    def parsed(self, items: Dataset, batched: Callable[[Dataset], Dataset]) -> Dataset:
        """Return batches of parsed examples."""
        if self._source.parse_batch is not None:
            parse = self._source.parse_batch
            return batched(items).map(
                lambda records, *rest: (parse(records), *rest), num_parallel_calls=tf.data.AUTOTUNE
            )
        return batched(items.map(self._source.parse, num_parallel_calls=tf.data.AUTOTUNE))

    def culprit(self, start: int, stop: int) -> str | None:
        """Return what is wrong with which of the examples ``start ... stop-1``, if any is."""
        for file, offset, skip, count in self.between(start, stop):
            first = start - (self._ends[file] - self._files[file].records)
            segment = tuple(tf.constant(part, tf.int64) for part in (file, offset, skip, count))
            reader = Dataset.from_tensors(segment).flat_map(partial(self.read, _BUFFER_BYTES[1]))
            problem = self._first_problem(iter(reader), self._files[file], first)
            if problem:
                return problem
            start += count
        return None

    def _first_problem(
        self, reader: Iterator[tf.Tensor], file: FileIndex, record: int
    ) -> str | None:
        while True:
            try:
                serialized = next(reader)
            except StopIteration:
                return None
            except tf.errors.OpError as error:
                entry, skip = file.entry(record)
                place = f"byte {entry}" if not skip else f"{skip} records after byte {entry}"
                return f"{file.path} is damaged at record {record} ({place}): {gist(error)}"
            try:
                if self._source.parse is not None:
                    self._source.parse(serialized)
                else:
                    self._source.parse_batch(serialized[tf.newaxis])
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                return f"parse failed on record {record} of {file.path}: {gist(error)}"
            record += 1


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


class Pipeline:
    """The batches of one task, for all of its replicas, from any step on, without an end.

    Each element is ``(data, rows, global_rows)``: what the source's parse function gives with a
    batch dimension; the replica's rows in this step; all replicas' rows in this step. Where a
    replica has no row in a last step smaller than the cluster, its batch holds one row and ``rows``
    is 0.
    """

    def __init__(self, items: Items, plan: Plan, order: Order) -> None:
        self._items = items
        self._plan = plan
        self._order = order
        compressed = isinstance(items, RecordItems) and items.compressed
        self._stream_shuffle = compressed and order.pool > 0
        self._window = self._window_size(compressed)
        self._buffer_bytes = int(np.clip(self._window * items.item_bytes // 8, *_BUFFER_BYTES))

    def _window_size(self, compressed: bool) -> int:
        """Return the records of a window; the same on every cluster, as the order depends on it."""
        longest = -(-self._plan.examples // self._plan.shards)
        if compressed or not self._order.pool:
            return longest
        fitting = _POOL_BYTES // (self._plan.shards * max(1, self._items.item_bytes))
        return max(1, min(longest, fitting, -(-self._order.pool // self._plan.shards)))

    def dataset(self, replicas: range, first_step: int = 0) -> Dataset:
        """Return the batches of ``replicas`` in turn, from global step ``first_step`` on."""
        streams = [self._stream(replica, first_step) for replica in replicas]
        if len(streams) > 1:
            turns = Dataset.range(len(streams)).repeat()
            streams = [Dataset.choose_from_datasets(streams, turns)]
        endless = streams[0].apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        return endless.prefetch(tf.data.AUTOTUNE)

    def culprit(self, shard: int) -> str | None:
        """Return which record of ``shard`` cannot be read or parsed, and why, if one can't."""
        return self._items.culprit(*self._plan.shard_bounds(shard))

    def _stream(self, replica: int, first_step: int) -> Dataset:
        """Return the batches of one replica: the rest of the pass under way, then all others."""
        number, step = divmod(first_step, self._plan.steps)
        left = self._one_pass(tf.constant(number, tf.int64), replica, step) if step else None
        whole = Dataset.range(number + (step > 0), 1 << 62).flat_map(
            lambda number: self._one_pass(number, replica, 0)
        )
        return left.concatenate(whole) if left else whole

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
            # A short last window stays last, so that `done` tells the window to enter.
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
        return items.batch(self._window).flat_map(
            lambda batch: Dataset.from_tensor_slices(
                tf.gather(batch, self._shuffled(tf.shape(batch)[0], *place))
            )
        )


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
