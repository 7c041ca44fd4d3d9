"""Which example is at which position of a pass, and where a replica reads its own.

The examples are cut into *regions*, contiguous parts of the data; position ``p`` belongs to region
``p mod P`` of ``P``. A region is read in *windows*, in a seeded order, and a window is cut into a
block for each of its logical shards: shard ``j`` has block ``j // P`` of the windows of region ``j
mod P``. So a replica that owns all shards of a region reads whole windows, and one that shares a
region with others only its blocks. Positions go round robin over the shards, and the examples of a
block are in a seeded order.

A *round* is a window of each region. All is a function of the seed, the pass and the plan's
shards, on every cluster alike, and a run is resumed at the round of any step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from .plan import BatchPlan

Dataset = tf.data.Dataset

_WINDOWS, _EXAMPLES, _STREAMS = 0, 1, 2  # what is shuffled by a seed of its own


@dataclass(frozen=True)
class EpochOrder:
    """The order of the examples of a pass.

    Parameters
    ----------
    plan
        How examples are sharded.
    block
        Examples of a block, of which the last round of a pass may have fewer.
    seed
        The seed of the job.
    shuffles
        Whether windows, and examples in them, are in a seeded order.
    """

    plan: BatchPlan
    block: int
    seed: int = 0
    shuffles: bool = False

    @property
    def full_rounds(self) -> int:
        """Rounds of a pass in which all blocks are whole; one more round has the rest."""
        return self.plan.examples // self.plan.shards // self.block

    def rows_of_round(self, replica: int) -> int:
        """Return the rows of a replica in a full round."""
        return len(self.plan.shards_of(replica)) * self.block

    @property
    def unit_rows(self) -> int:
        """Examples that a replica reads one after another in a full round."""
        return self.block * (self._blocks if self._owns_regions else 1)

    def example_at(self, position: int) -> int:
        """Return the example at a position of a pass that is not shuffled."""
        item, shard = divmod(position, self.plan.shards)
        round_, row = divmod(item, self.block)
        return int(self._starts(round_)[shard] + row)

    def ranges(self, number: tf.Tensor, replica: int, first_round: int) -> Dataset:
        """Return the ranges of examples ``(start, stop)`` that a replica reads in a pass.

        Parameters
        ----------
        number
            The pass (scalar, int64).
        replica
            The replica.
        first_round
            The round to start at.
        """
        shards = self._in_data_order(replica)
        last_starts, sizes = self._starts(self.full_rounds)[shards], self._sizes(self.full_rounds)
        starts, stops = last_starts, last_starts + sizes[shards]
        if self._owns_regions:
            starts, stops = starts[:: self._blocks], stops[self._blocks - 1 :: self._blocks]
            shards = shards[:: self._blocks]
        last = np.stack([starts, stops], axis=1)[np.newaxis]
        first = tf.constant(self._starts(0)[shards], tf.int64)
        windows = tf.gather(self._windows(number), shards % self.plan.regions, axis=1)
        full = first + windows[first_round:] * (self._blocks * self.block)
        full = tf.stack([full, full + self.unit_rows], axis=2)
        bounds = tf.reshape(tf.concat([full, last], 0), [-1, 2])
        return Dataset.from_tensor_slices((bounds[:, 0], bounds[:, 1]))

    def indices_by_position(self, number: tf.Tensor, round_: tf.Tensor, replica: int) -> tf.Tensor:
        """Return the order of a round's examples by position, as indices of what was read."""
        shards = np.array(self.plan.shards_of(replica))
        in_data_order = self._in_data_order(replica)
        is_full = round_ < self.full_rounds
        last_sizes = tf.constant(self._sizes(self.full_rounds), tf.int64)
        sizes = tf.where(is_full, tf.cast(self.block, tf.int64), last_sizes)
        read_before = tf.cumsum(tf.gather(sizes, in_data_order), exclusive=True)
        offsets = tf.gather(read_before, np.argsort(in_data_order))
        sizes = tf.gather(sizes, shards)
        rows = tf.tile(tf.range(self.block, dtype=tf.int64)[tf.newaxis], [len(shards), 1])
        if self.shuffles:
            shape = [self.plan.shards, self.block]
            keys = tf.random.stateless_uniform(shape, self._seed(_EXAMPLES, number, round_))
            # Rows that the last round does not have come last.
            keys = tf.where(rows < sizes[:, tf.newaxis], tf.gather(keys, shards), 2.0)
            rows = tf.cast(tf.argsort(keys, axis=1, stable=True), tf.int64)
        indices = tf.transpose(offsets[:, tf.newaxis] + rows)
        return tf.reshape(indices, [-1])[: tf.reduce_sum(sizes)]

    def seed_of(self, number: tf.Tensor, region: tf.Tensor) -> tf.Tensor:
        """Return the seed for a region of a pass that is read as a stream (vector of 2, int64)."""
        return self._seed(_STREAMS, number, region)

    @property
    def _blocks(self) -> int:
        """Blocks of a window."""
        return self.plan.shards // self.plan.regions

    @property
    def _owns_regions(self) -> bool:
        """Whether each replica has all shards of its regions."""
        return self.plan.regions % self.plan.replicas == 0

    def _in_data_order(self, replica: int) -> np.ndarray:
        """Return a replica's shards in the order of their examples in the data."""
        shards = np.array(self.plan.shards_of(replica))
        return shards[np.lexsort((shards // self.plan.regions, shards % self.plan.regions))]

    def _sizes(self, round_: int) -> np.ndarray:
        """Return the examples of each shard in a round, before which all are full."""
        shards = np.arange(self.plan.shards)
        left = -((shards - self.plan.examples) // self.plan.shards) - round_ * self.block
        return np.clip(left, 0, self.block)

    def _starts(self, round_: int) -> np.ndarray:
        """Return the first example of each shard's block of a round that is not shuffled."""
        regions = self.plan.regions
        sizes = self._sizes(round_).reshape(self._blocks, regions)
        before = np.cumsum(sizes, axis=0) - sizes
        region_starts = np.array([self.plan.region_bounds(region)[0] for region in range(regions)])
        window = round_ * self._blocks * self.block
        return (region_starts + window + before).reshape(-1)

    def _windows(self, number: tf.Tensor) -> tf.Tensor:
        """Return the window of each full round and region (matrix, int64)."""
        shape = [self.full_rounds, self.plan.regions]
        if not self.shuffles:
            return tf.tile(tf.range(self.full_rounds, dtype=tf.int64)[:, tf.newaxis], [1, shape[1]])
        keys = tf.random.stateless_uniform(shape, self._seed(_WINDOWS, number))
        return tf.cast(tf.argsort(keys, axis=0, stable=True), tf.int64)

    def _seed(self, *parts: Any) -> tf.Tensor:
        """Mix the seed of the job and a place in the data into a seed of two numbers."""
        seed = tf.constant([self.seed, len(parts)], tf.int64)
        for part in parts:
            seed = tf.random.experimental.stateless_fold_in(seed, tf.cast(part, tf.int64))
        return seed
