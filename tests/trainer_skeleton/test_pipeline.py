"""Every example once and in its step: of any files, on any cluster, from any step on."""

from __future__ import annotations

from collections import Counter

import numpy as np
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainer.distributed.datasets import OwnDataset, Rows
from trainer.distributed.index import EVERY, FileIndex, Index
from trainer.distributed.input import Arrays, RecordItems, Records
from trainer.distributed.pipeline import Order, Pipeline
from trainer.distributed.plan import Plan, Shares


@st.composite
def plans(draw: st.DrawFn, *, examples: int, most_replicas: int, steps: int = 40) -> Plan:
    replicas = draw(st.integers(1, min(most_replicas, examples)))
    shards = replicas * draw(st.integers(1, 4))
    batch = draw(st.integers(max(replicas, examples // steps), 200))
    return Plan(examples, batch, replicas, shards)


@st.composite
def files_and_plans(draw: st.DrawFn) -> tuple[list[int], Plan]:
    """Return the records of each file, and a plan for them."""
    files = draw(st.lists(st.integers(0, 90) | st.just(1), min_size=1, max_size=50))
    files = files if sum(files) else [*files, 1]
    return files, draw(plans(examples=sum(files), most_replicas=16))


few_examples = st.integers(1, 200).flatmap(
    lambda count: plans(examples=count, most_replicas=5, steps=8)
)


def index_of(files: list[int]) -> Index:
    """Return an index of files with records of 10 bytes each."""
    return Index(
        [
            FileIndex(f"file-{n}", 10 * count, 0, count, list(range(0, 10 * count, 10 * EVERY)), "")
            for n, count in enumerate(files)
        ],
        0,
    )


@settings(max_examples=40)
@given(files_and_plans())
def test_every_record_of_every_file_is_in_one_shard(files_and_plan):
    files, plan = files_and_plan
    items = RecordItems(Records("file-*", parse=lambda record: record), index_of(files))
    read: Counter[tuple[int, int]] = Counter()
    for replica in range(plan.replicas):
        for shard in plan.shards_of(replica):
            for first, file, offset, skip, count in items.between(*plan.shard_bounds(shard)):
                assert first == sum(files[:file]) + offset // 10 + skip
                read.update((file, offset // 10 + skip + at) for at in range(count))
    assert read == {(file, n): 1 for file, count in enumerate(files) for n in range(count)}


def numbers_of(pipeline, replica, steps, first=0):
    """Return the examples that a replica gets in each step."""
    batches = iter(pipeline.dataset(range(replica, replica + 1), first, steps))
    steps_rows = []
    for _ in range(first, steps):
        data, own, total, numbers = next(batches)
        assert int(own) <= len(numbers)
        assert len(tf.nest.flatten(data)[0]) == len(numbers)
        steps_rows.append((numbers.numpy()[: int(own)].tolist(), int(total)))
    return steps_rows


@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(few_examples, st.integers(0, 60), st.data())
def test_every_example_is_trained_on_once_in_a_pass(team, plan, pool, data):
    x = np.arange(plan.examples)
    order = Order(seed=pool, pool=pool)
    pipelines = [
        Pipeline(Arrays(x).open(team, "", numbered=True), each, order)
        for each in (plan, Plan(plan.examples, plan.global_batch, 1, plan.shards))
    ]
    steps = 2 * plan.steps
    together = [numbers_of(pipelines[0], replica, steps) for replica in range(plan.replicas)]
    alone = numbers_of(pipelines[1], 0, steps)
    for step, (expected, total) in enumerate(alone):
        got = [number for own in together for number in own[step][0]]
        assert sorted(got) == sorted(expected)
        assert {own[step][1] for own in together} == {total} == {len(expected)}
    for half in (alone[: plan.steps], alone[plan.steps :]):
        assert sorted(number for numbers, _ in half for number in numbers) == x.tolist()
    first = data.draw(st.integers(0, steps - 1))
    assert numbers_of(pipelines[1], 0, steps, first) == alone[first:]


shares = st.builds(
    lambda counts, batch: Shares((*counts, 1), batch * (len(counts) + 1)),
    st.lists(st.integers(0, 50), max_size=5),
    st.integers(1, 9),
)


@given(shares, st.integers(0, 100))
def test_shares_see_all_their_rows_in_a_pass(plan, steps):
    assert plan.examples_seen(plan.steps) == plan.examples == sum(plan.counts)
    assert plan.examples_seen(plan.steps + steps) == plan.examples + plan.examples_seen(steps)
    assert plan.may_lack_rows == (min(map(plan.steps_of, range(plan.replicas))) < plan.steps)


@settings(max_examples=4)
@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 5), st.data())
def test_own_data_sets_are_seen_once_in_a_pass(rows, replicas, batch, data):
    batches = tf.data.Dataset.range(rows).map(lambda x: (x, x)).batch(batch * replicas)
    dealt_out = Rows(batches, replicas, "data")
    counts = tuple(len(range(replica, rows, replicas)) for replica in range(replicas))
    plan = Shares(counts, batch * replicas)
    own = OwnDataset(dealt_out, plan)
    first = data.draw(st.integers(0, plan.steps - 1))
    seen: Counter[int] = Counter()
    for replica in range(replicas):
        iterator = iter(own.dataset(range(replica, replica + 1), first, 2 * plan.steps))
        for step in range(first, 2 * plan.steps):
            (x, _), count, total = next(iterator)
            left = [max(0, min(batch, c - step % plan.steps * batch)) for c in counts]
            assert (int(count), int(total)) == (left[replica], sum(left))
            assert len(x) == max(1, left[replica])
            seen.update(x.numpy()[: int(count)].tolist())
    skipped = {p for r in range(replicas) for p in list(range(r, rows, replicas))[: first * batch]}
    assert seen == {row: 1 if row in skipped else 2 for row in range(rows)}
