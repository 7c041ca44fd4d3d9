"""The order of a pass: every example once, and as well shuffled as by chance."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from distlaunch_trainer.input.order.epoch_order import EpochOrder
from distlaunch_trainer.input.order.plan import BatchPlan

EPOCHS, BATCH, SHARDS = 40, 32, 240


def rounds_in_order(order: EpochOrder, number: tf.Tensor, replica: int = 0) -> np.ndarray:
    """Return the examples of a pass by position, as a replica reads them block by block."""
    starts, stops = order.ranges(number, replica, 0).batch(1 << 20).get_single_element()
    read = np.concatenate(list(map(np.arange, starts.numpy(), stops.numpy())))
    starts = range(0, len(read) or 1, order.rows_of_round(replica))
    rounds = [
        read[start : start + order.rows_of_round(replica)][
            order.indices_by_position(number, tf.constant(at, tf.int64), replica).numpy()
        ]
        for at, start in enumerate(starts)
    ]
    return np.concatenate(rounds)


def by_number(examples: int) -> list[np.ndarray]:
    order = EpochOrder(BatchPlan(examples, BATCH), seed=1, shuffles=True)
    return [order.examples(tf.constant(n, tf.int64)).numpy() for n in range(EPOCHS)]


def in_rounds(examples: int) -> list[np.ndarray]:
    order = EpochOrder(BatchPlan(examples, BATCH), block=42, seed=1, shuffles=True)
    return [rounds_in_order(order, tf.constant(n, tf.int64)) for n in range(EPOCHS)]


def by_chance(examples: int) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.permutation(examples) for _ in range(EPOCHS)]


def facts(orders: list[np.ndarray]) -> dict[str, float]:
    """Return how well orders of epochs are shuffled."""
    examples = len(orders[0])
    positions = np.argsort(orders, axis=1)
    shards = np.sort(positions[:, :1000] % SHARDS, axis=0)
    some = range(0, examples, max(1, examples // 100))
    mates = [
        {
            mate
            for order, at in zip(orders, positions[:, each], strict=True)
            for mate in order[at // BATCH * BATCH : (at // BATCH + 1) * BATCH].tolist()
        }
        for each in some
    ]
    return {
        "moved": np.abs(np.diff(positions, axis=0)).mean() / examples,
        "unmoved": (np.diff(positions, axis=0) == 0).mean() * examples / EPOCHS,
        "mean position": positions.mean(axis=0).std() / examples,
        "shards": (np.diff(shards, axis=0) != 0).sum(axis=0).mean() / EPOCHS,
        "neighbours": (np.diff(orders, axis=1) == 1).mean() * examples / EPOCHS,
        "mates": np.mean([len(each) for each in mates]) / examples,
    }


@pytest.mark.parametrize(
    ("orders", "examples"),
    [*((by_number, count) for count in (100, 272, 1437, 50_000)), (in_rounds, 50_000)],
)
def test_an_example_is_anywhere_and_with_any_others(orders, examples):
    """By an example's positions and shards in all epochs, and by those in its batches of 32."""
    assert facts(orders(examples)) == pytest.approx(facts(by_chance(examples)), rel=0.03, abs=0.02)


def test_every_order_of_few_examples_is_possible():
    order = EpochOrder(BatchPlan(4, 2), shuffles=True)
    seen = {tuple(order.examples(tf.constant(n, tf.int64)).numpy()) for n in range(200)}
    assert len(seen) == 24


def test_the_data_keep_their_order():
    number = tf.constant(3, tf.int64)
    assert EpochOrder(BatchPlan(50, 2)).examples(number).numpy().tolist() == list(range(50))
    # A shard reads one block after another, and positions go round robin over the shards.
    order = EpochOrder(BatchPlan(14, 2, shards=2), block=3)
    expected = [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11, 12, 13]
    assert rounds_in_order(order, number).tolist() == expected


@settings(max_examples=5)
@given(st.data(), st.sampled_from([1, 2, 5]), st.integers(0, 900))
def test_a_position_has_the_same_example_on_every_cluster(data, replicas, more):
    plan = BatchPlan(replicas + more, replicas + more, replicas, replicas * 6)
    block = data.draw(st.integers(1, -(-plan.examples // plan.shards)))
    number = tf.constant(1, tf.int64)

    def positions(plan: BatchPlan, replica: int) -> list[int]:
        return rounds_in_order(EpochOrder(plan, block, 3, shuffles=True), number, replica).tolist()

    alone = positions(BatchPlan(plan.examples, plan.global_batch, 1, plan.shards), 0)
    assert sorted(alone) == list(range(plan.examples))
    for replica in range(replicas):
        assert positions(plan, replica) == alone[replica::replicas]
