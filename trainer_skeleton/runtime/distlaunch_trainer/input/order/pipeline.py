"""The batches of a replica, as a ``tf.data`` pipeline.

A replica takes the examples that are its own by their numbers (``epoch_order``). Of data that are
too large for that it reads ranges, several at once and a round ahead, and brings the examples of a
round into their order. As all is a function of the seed and the pass, a resumed run enters in the
middle without reading what was read before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.input.batch_rows import count_rows, take_rows, unpacked
from distlaunch_trainer.input.batches import on_devices, with_static_rows
from distlaunch_trainer.input.examples.example_source import ExampleSource

from .epoch_order import EpochOrder
from .plan import BatchPlan

Dataset = tf.data.Dataset


_BUFFER_BYTES = 256 << 20  # of the examples of a round over all replicas
_BLOCK_BYTES = 1 << 20  # of a range that is worth a request of its own
_PIECE_BYTES = 2 << 20  # of what is read at once


def _no_rows(item: tf.TensorSpec) -> tf.Tensor:
    return tf.zeros([0, *item.shape], item.dtype)


class Pipeline:
    """The batches of records or arrays that a plan shards, from any step on, without an end.

    Each element is ``(data, rows, global_rows)``: the data with a batch dimension; the replica's
    rows in this step; all replicas' rows in this step. Where a replica has no row in a step, its
    batch holds one row and ``rows`` is 0. For an audit the numbers of the examples come last.
    """

    def __init__(
        self,
        source: ExampleSource,
        plan: BatchPlan,
        *,
        seed: int = 0,
        # Examples to shuffle among at least, over all shards; 0 keeps the order of the data.
        shuffle_buffer: int = 0,
        static_rows: int | None = None,  # of each replica and step, if they must be known
    ) -> None:
        self._static_rows = static_rows
        self._source = source
        self._plan = plan
        self._shuffle_buffer = shuffle_buffer
        self._epoch = EpochOrder(plan, self._block_size(), seed, shuffle_buffer > 0)

    def _block_size(self) -> int:
        """Return the examples of a block, which do not depend on the cluster."""
        plan, size = self._plan, max(1, self._source.item_bytes)
        longest = -(-plan.examples // plan.shards)
        fitting = _BUFFER_BYTES // (plan.shards * size)
        wanted = max(-(-self._shuffle_buffer // plan.shards), _BLOCK_BYTES // size)
        return max(1, min(longest, fitting, wanted))

    def batches(self, cluster: Cluster, first_step: int = 0, last_step: int | None = None) -> Any:
        """Return an iterator over the batches of ``cluster``'s own replicas."""
        return iter(on_devices(self.dataset(cluster.replica_ids, first_step, last_step), cluster))

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
        endless = with_static_rows(stream, self._static_rows).apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        return endless.prefetch(tf.data.AUTOTUNE)

    @tf.autograph.experimental.do_not_convert
    def data_spec(self) -> Any:
        """Return the type of a batch's data, without building the whole pipeline."""
        none = tf.nest.map_structure(_no_rows, self._source.item_spec)
        batch = self._source.batch(Dataset.from_tensor_slices(none).batch(1), 1)
        examples = batch.enumerate().map(lambda _, data: self._source.examples_of(data))
        spec = examples.element_spec
        return spec[0] if self._source.options.numbered else spec

    @tf.autograph.experimental.do_not_convert
    def find_bad_record(self, replicas: range, step: int = 0) -> str | None:
        """Return which record of the replicas' cannot be read or parsed, and why, if one can't."""
        number, step = divmod(step, self._plan.steps)
        parts = chain(*(self._numbers_read(number, replica, step) for replica in replicas))
        return next(filter(None, map(self._source.find_bad_record, parts)), None)

    def _numbers_read(self, number: int, replica: int, step: int) -> Iterator[Sequence[int]]:
        """Return the numbers of the examples that a replica reads in a pass from a step on."""
        done, number = self._plan.rows_before(step, replica), tf.constant(number, tf.int64)
        if self._source.by_number:
            yield self._epoch.examples(number)[replica :: self._plan.replicas][done:].numpy()
        else:
            first_round = done // self._epoch.rows_of_round(replica)
            ranges = self._epoch.ranges(number, replica, first_round)
            yield from (range(*each) for each in ranges.as_numpy_iterator() if each[0] < each[1])

    def passes_from(self, first: tf.Tensor | int, replica: int = 0) -> Dataset:
        """Return the batches of a replica from a pass on, without an end."""
        numbers = Dataset.range(first, 1 << 62)
        if not self._source.by_number:
            return numbers.flat_map(lambda number: self._one_pass(number, (), replica))
        orders = numbers.map(lambda number: (number, self._epoch.examples(number))).prefetch(1)
        return orders.flat_map(lambda number, order: self._one_pass(number, order, replica))

    def _stream(self, replicas: range, first_step: int) -> Dataset:
        """Return the batches of the replicas in turn, from a step on."""
        streams = [self._replica_stream(replica, first_step) for replica in replicas]
        if len(streams) > 1:
            streams = [stream.prefetch(1) for stream in streams]
            turns = Dataset.range(len(streams)).repeat()
            streams = [Dataset.choose_from_datasets(streams, turns)]
        if self._source.options.cache is None:
            return streams[0]
        # TensorFlow 2.21 fuses map() of a function with resources and batch() wrongly: it takes
        # another input for the rows of a batch.
        options = tf.data.Options()
        options.experimental_optimization.map_and_batch_fusion = False
        return streams[0].with_options(options)

    def _replica_stream(self, replica: int, first_step: int) -> Dataset:
        """Return the batches of one replica: the rest of the pass under way, then all others."""
        number, step = divmod(first_step, self._plan.steps)
        stream = self.passes_from(number + (step > 0), replica)
        if step:
            number = tf.constant(number, tf.int64)
            order = self._epoch.examples(number) if self._source.by_number else ()
            stream = self._one_pass(number, order, replica, step).concatenate(stream)
        if not self._source.options.numbered:
            return stream
        return stream.map(lambda numbered, *sizes: (numbered[0], *sizes, numbered[1]))

    def _one_pass(self, number: tf.Tensor, order: Any, replica: int, step: int = 0) -> Dataset:
        """Return the batches of one pass over the data, from ``step`` on.

        `order` has the example at each position, of a source that is read by number.
        """
        done = self._plan.rows_before(step, replica)
        if self._source.by_number:
            items = self._numbered_items(order[replica :: self._plan.replicas][done:])
        else:
            items = self._pass_items(number, replica, done)
        batches = self._batched(items, replica, step)
        if self._plan.rows(self._plan.steps - 1, replica):
            return batches
        return batches.concatenate(self._any_row())

    def _any_row(self) -> Dataset:
        """Return a batch with one row, which does not count."""
        if self._source.by_number:
            item = self._numbered_items(tf.zeros([1], tf.int32))
        else:
            item = self._source.read(0, 1).batch(1)
        sizes = self._sizes(0, self._plan.steps - 1)
        batch = self._source.batch(item, 1).enumerate()
        return batch.map(lambda _, data: (self._source.examples_of(data), *sizes))

    def _numbered_items(self, numbers: tf.Tensor) -> Dataset:
        """Return the items with these numbers (vector, int32), in vectors."""
        rows = self._plan.period_rows  # so that batches are cut from few vectors
        rows *= max(1, _PIECE_BYTES // max(1, self._source.item_bytes) // rows)
        starts = Dataset.range(0, tf.size(numbers, tf.int64), rows)
        return starts.map(
            lambda start: self._source.items_at(tf.cast(numbers[start : start + rows], tf.int64))
        )

    def _sizes(self, rows: Any, step: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a replica's rows and all replicas' rows in ``step`` of a pass."""
        left = self._plan.examples - tf.cast(step, tf.int64) * self._plan.global_batch
        batch = tf.constant(self._plan.global_batch, tf.int64)
        return tf.cast(rows, tf.int64), tf.minimum(batch, left)

    def _batched(self, items: Dataset, replica: int, step: int) -> Dataset:
        """Cut a replica's items from ``step`` on into its rows of each step."""
        plan, examples_of = self._plan, self._source.examples_of
        chunks = self._source.batch(items, plan.period_rows).enumerate()

        def one_step(number: tf.Tensor, data: Any) -> tuple[Any, ...]:
            return examples_of(data), *self._sizes(count_rows(data), step + number)

        if plan.period == 1:
            return chunks.map(one_step, num_parallel_calls=tf.data.AUTOTUNE)
        parts = chunks.flat_map(lambda number, data: self._period(number, data, replica, step))
        return parts.map(
            lambda data, *sizes: (examples_of(data), *sizes),
            num_parallel_calls=tf.data.AUTOTUNE,
        )

    def _period(self, number: tf.Tensor, data: Any, replica: int, step: int) -> Dataset:
        """Cut one period of a replica's rows, which are not equally many in each step."""
        plan = self._plan
        first = step + number * plan.period
        steps = first + tf.range(plan.period + 1, dtype=tf.int64)
        positions = tf.minimum(steps * plan.global_batch, plan.examples)
        cuts = (positions - replica + plan.replicas - 1) // plan.replicas
        cuts -= cuts[0]

        def cut(at: tf.Tensor) -> tuple[Any, ...]:
            part = take_rows(data, tf.range(cuts[at], cuts[at + 1]))
            return part, *self._sizes(cuts[at + 1] - cuts[at], first + at)

        filled = tf.reduce_sum(tf.cast(cuts[1:] > cuts[:-1], tf.int64))
        return Dataset.range(filled).map(cut)

    def _pass_items(self, number: tf.Tensor, replica: int, done: int) -> Dataset:
        """Return a replica's items of a pass by position from ``done`` on, in vectors."""
        epoch, rows = self._epoch, self._epoch.rows_of_round(replica)
        first_round = min(done // rows, epoch.full_rounds)
        done -= first_round * rows
        ranges = self._in_pieces(epoch.ranges(number, replica, first_round))
        rounds = self._source.read_ranges(ranges).rebatch(rows).enumerate(first_round)

        def by_position(round_: tf.Tensor, *items: Any) -> Any:
            indices = epoch.indices_by_position(number, round_, replica)
            return take_rows(unpacked(items), indices[tf.where(round_ == first_round, done, 0) :])

        return rounds.map(by_position).prefetch(1)

    def _in_pieces(self, ranges: Dataset) -> Dataset:
        """Cut ranges of examples so that some of them can be held in memory."""
        piece = max(1, _PIECE_BYTES // max(1, self._source.item_bytes))
        if self._epoch.block <= piece:
            return ranges
        return ranges.flat_map(
            lambda start, stop: Dataset.range(start, stop, piece).map(
                lambda first: (first, tf.minimum(first + piece, stop))
            )
        )
