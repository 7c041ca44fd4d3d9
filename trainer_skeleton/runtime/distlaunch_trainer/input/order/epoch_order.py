"""Which example is at which position of a pass, as a function of the seed and the pass.

Examples that are read by their number have one order, the same for every cluster. Other data are
too large for that: they are cut into *blocks* of consecutive examples, and a *round* of a pass is
one block for each logical shard, so that a replica reads only the blocks of its own shards. Which
block a shard has in which round, and the examples of a block, are shuffled. Positions go round
robin over the shards, and a run is resumed at the round of any step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from .plan import BatchPlan

Dataset = tf.data.Dataset

# What is shuffled by a seed of its own.
_PASS, _BLOCKS, _GAP, _REST, _ROWS = range(5)


@dataclass(frozen=True)
class EpochOrder:
    """The order of the examples of a pass."""

    plan: BatchPlan
    block: int = 1  # examples of a block, of which the last round of a pass may have fewer
    seed: int = 0  # of the job
    shuffles: bool = False  # or keeps the order of the data

    def examples(self, number: tf.Tensor) -> tf.Tensor:
        """Return the example at each position of a pass (vector, int32).

        ``index_shuffle`` would need no vector, but takes ten times as long and keeps neighbours.
        """
        return self._shuffled(self.plan.examples, _PASS, number)

    @property
    def full_rounds(self) -> int:
        """Rounds of a pass in which all blocks are whole; one more round has the rest."""
        return self.plan.examples // self.plan.shards // self.block

    def rows_of_round(self, replica: int) -> int:
        """Return the rows of a replica in a full round."""
        return len(self.plan.shards_of(replica)) * self.block

    def ranges(self, number: tf.Tensor, replica: int, first_round: int) -> Dataset:
        """Return the ranges of examples ``(start, stop)`` that a replica reads in a pass."""
        shards = np.array(self.plan.shards_of(replica))
        whole = self.full_rounds * self.plan.shards
        blocks = tf.reshape(self._shuffled(whole, _BLOCKS, number), [-1, self.plan.shards])
        blocks = tf.cast(tf.gather(blocks[first_round:], shards, axis=1), tf.int64)
        # What comes last in a pass is not always the end of the data.
        before_rest = tf.constant(whole, tf.int64)
        if self.shuffles:
            seed = self._seed(_GAP, number)
            before_rest = tf.random.stateless_uniform([], seed, 0, whole + 1, tf.int64)
        sizes = self._rest_sizes()
        starts = blocks * self.block + tf.cast(blocks >= before_rest, tf.int64) * sizes.sum()
        rest_starts = before_rest * self.block + self._shuffled_starts(sizes, _REST, number)
        starts = tf.concat([tf.reshape(starts, [-1]), tf.gather(rest_starts, shards)], 0)
        full_sizes = tf.fill([tf.size(blocks)], tf.constant(self.block, tf.int64))
        return Dataset.from_tensor_slices(
            (starts, starts + tf.concat([full_sizes, sizes[shards]], 0))
        )

    def indices_by_position(self, number: tf.Tensor, round_: tf.Tensor, replica: int) -> tf.Tensor:
        """Return the order of a round's examples by position, as indices of what was read."""
        shards = np.array(self.plan.shards_of(replica))
        is_full = round_ < self.full_rounds
        sizes = tf.where(is_full, tf.cast(self.block, tf.int64), self._rest_sizes()[shards])
        offsets = tf.cumsum(sizes, exclusive=True)
        rows = tf.tile(tf.range(self.block, dtype=tf.int64)[tf.newaxis], [len(shards), 1])
        if self.shuffles:
            shape = [self.plan.shards, self.block]
            keys = tf.random.stateless_uniform(shape, self._seed(_ROWS, number, round_))
            # Rows that the last round does not have come last.
            keys = tf.where(rows < sizes[:, tf.newaxis], tf.gather(keys, shards), 2.0)
            rows = tf.cast(tf.argsort(keys, axis=1, stable=True), tf.int64)
        indices = tf.transpose(offsets[:, tf.newaxis] + rows)
        return tf.reshape(indices, [-1])[: tf.reduce_sum(sizes)]

    def _rest_sizes(self) -> np.ndarray:
        """Return the examples of each shard in the last round."""
        shards = np.arange(self.plan.shards)
        left = -((shards - self.plan.examples) // self.plan.shards) - self.full_rounds * self.block
        return np.clip(left, 0, self.block)

    def _shuffled_starts(self, sizes: np.ndarray, *seed: Any) -> tf.Tensor:
        """Return where parts of these sizes start, which follow one another in any order."""
        order = self._shuffled(len(sizes), *seed)
        starts = tf.cumsum(tf.gather(tf.constant(sizes, tf.int64), order), exclusive=True)
        return tf.gather(starts, tf.math.invert_permutation(order))

    def _shuffled(self, count: int, *seed: Any) -> tf.Tensor:
        """Return the numbers below `count`, shuffled if the order is (vector, int32)."""
        numbers = tf.range(count)
        if not self.shuffles:
            return numbers
        return tf.random.experimental.stateless_shuffle(numbers, self._seed(*seed))

    def _seed(self, *parts: Any) -> tf.Tensor:
        """Mix the seed of the job and a place in the data into a seed of two numbers."""
        seed = tf.constant([self.seed, len(parts)], tf.int64)
        for part in parts:
            seed = tf.random.experimental.stateless_fold_in(seed, tf.cast(part, tf.int64))
        return seed
