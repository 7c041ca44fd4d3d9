"""Every example once and in its step: of any files, on any cluster, from any step on."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distlaunch_trainer.errors import PlanError
from distlaunch_trainer.input.examples.arrays import Arrays
from distlaunch_trainer.input.examples.example_source import InputOptions
from distlaunch_trainer.input.order.pipeline import Pipeline
from distlaunch_trainer.input.order.plan import BatchPlan, coverage_note
from distlaunch_trainer.input.records.record_index import EVERY, FileIndex, Index
from distlaunch_trainer.input.records.records import _FileTable


@st.composite
def plans(draw, examples=5000, replicas=16, steps=60, shards=6):
    """Plans of at most so many examples, replicas, steps and shards of a replica."""
    size = draw(st.integers(1, min(replicas, examples)))
    count = draw(st.integers(size, examples))
    # Batches of a few rows would make thousands of steps.
    batch = draw(st.integers(max(size, count // steps), count + count // 5))
    return BatchPlan(count, batch, size, size * draw(st.integers(1, shards)))


def positions(plan: BatchPlan, replica: int) -> list[list[int]]:
    """Return the positions that a replica reads in each step: those of its shards."""
    steps = []
    for start in range(0, plan.examples, plan.global_batch):
        end = min(start + plan.global_batch, plan.examples)
        firsts = [start + (shard - start) % plan.shards for shard in plan.shards_of(replica)]
        steps.append([at for first in firsts for at in range(first, end, plan.shards)])
    return steps


@given(plans())
def test_every_position_is_read_once_in_a_pass_and_in_its_step(plan):
    dealt = [positions(plan, replica) for replica in range(plan.replicas)]
    for step in range(plan.steps):
        read = sorted(position for steps in dealt for position in steps[step])
        start = step * plan.global_batch
        assert read == list(range(start, min(start + plan.global_batch, plan.examples)))


@given(plans())
def test_rows_are_those_that_the_shards_give_and_within_one_of_each_other(plan):
    rows = []
    for replica in range(plan.replicas):
        before = 0
        rows.append([len(read) for read in positions(plan, replica)])
        for step, count in enumerate(rows[-1]):
            assert plan.rows_before(step, replica) == before
            assert plan.rows(step, replica) == count
            before += count
        assert plan.rows_before(plan.steps, replica) == before
    for step, counts in enumerate(zip(*rows, strict=True)):
        assert max(counts) - min(counts) <= 1
        assert sum(counts) == plan.global_rows(step)
        assert plan.has_empty_replicas(step) == (0 in counts)


@given(plans())
def test_row_counts_of_full_steps_repeat_after_a_period(plan):
    full = plan.examples // plan.global_batch
    for replica in range(plan.replicas):
        rows = [plan.rows(step, replica) for step in range(full)]
        assert all(rows[step] == rows[step - plan.period] for step in range(plan.period, full))
        if full >= plan.period:
            assert sum(rows[: plan.period]) == plan.period_rows


@given(st.data(), st.integers(1, 48), st.integers(1, 5000))
def test_the_global_batches_are_the_same_for_every_cluster_that_divides_the_shards(
    data, shards, examples
):
    sizes = [n for n in range(1, min(16, shards, examples) + 1) if shards % n == 0]
    batch = data.draw(st.integers(max(sizes[-1], examples // 60), 6000))

    def global_batches(replicas: int) -> list[set[int]]:
        plan = BatchPlan(examples, batch, replicas, shards)
        dealt = [positions(plan, replica) for replica in range(replicas)]
        return [set().union(*step) for step in zip(*dealt, strict=True)]

    alone = global_batches(1)
    assert all(global_batches(replicas) == alone for replicas in sizes[1:])


@given(plans(), st.integers(0, 200))
def test_examples_seen_goes_on_over_passes(plan, steps):
    rows = [plan.global_rows(step) for step in range(plan.steps)]
    assert plan.examples_seen(steps) == sum(rows[step % plan.steps] for step in range(steps))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ((0, 8), "there are no examples to train on: the data holds 0 records"),
        (
            (8, 0),
            "a global batch of 0 leaves 1 of 1 replicas idle: use --global-batch-size 1 or more",
        ),
        (
            (80, 80, 5, 12),
            "5 replicas do not divide the 12 logical shards: use 1, 2, 3, 4, 6, 12 replicas, or "
            "start a new job with --shards 20 (parts of the data, equally many for each replica)",
        ),
        ((3, 8, 4), "4 replicas are more than the 3 examples: use 3 or fewer"),
        (
            (80, 3, 4),
            "a global batch of 3 leaves 1 of 4 replicas idle: use --global-batch-size 4 or more",
        ),
    ],
)
def test_plans_that_are_refused(plan, message):
    with pytest.raises(PlanError) as refused:
        BatchPlan(*plan)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("examples", "steps", "note"),
    [
        (1000, 16, None),
        (1001, 16, None),
        (1000, 31, "sees each example 1.9 times in an epoch of 1,000 examples"),
        (1001, 32, "sees each example 2.0 times in an epoch of 1,001 examples"),
        (1001, 15, "covers 95 % of the 1,001 examples and leaves 41 to the next epoch"),
    ],
)
def test_steps_that_do_not_see_each_example_once_are_noted(examples, steps, note):
    remedy = "--steps-per-epoch 16 (the default) sees each once"
    expected = note and f"--steps-per-epoch {steps} {note}; {remedy}"
    assert coverage_note(BatchPlan(examples, 64, 2), steps) == expected


def index_of(files: list[int]) -> Index:
    """Return an index of files with records of 10 bytes each."""
    return Index(
        [
            FileIndex(f"file-{n}", 10 * count, 0, count, list(range(0, 10 * count, 10 * EVERY)), "")
            for n, count in enumerate(files)
        ],
        0,
    )


@settings(max_examples=10)
@given(st.lists(st.integers(0, 90) | st.just(1), min_size=1, max_size=20), st.data())
def test_every_record_is_entered_in_its_file(files, data):
    table = _FileTable(index_of(files).files)
    number = data.draw(st.integers(0, len(files) - 1).filter(lambda n: files[n]))
    record = data.draw(st.integers(0, files[number] - 1))
    offset, skipped = table.entry(tf.constant(number), tf.constant(record, tf.int64))
    assert int(offset) // 10 + int(skipped) == record
    assert int(table.begins[number]) == sum(files[:number])


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


@settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow])
@given(plans(200, replicas=4, steps=8, shards=60), st.integers(0, 400), st.data())
def test_every_example_is_trained_on_once_in_a_pass(cluster, plan, pool, data):
    x = np.arange(plan.examples)
    options = InputOptions(numbered=True)
    plan_of_one = BatchPlan(plan.examples, plan.global_batch, 1, plan.shards)
    of_all, of_one = (
        Pipeline(Arrays(x).open(cluster, "", options), of_cluster, seed=pool, shuffle_buffer=pool)
        for of_cluster in (plan, plan_of_one)
    )
    steps = 2 * plan.steps
    together = [numbers_of(of_all, replica, steps) for replica in range(plan.replicas)]
    alone = numbers_of(of_one, 0, steps)
    for step, (expected, total) in enumerate(alone):
        got = [number for own in together for number in own[step][0]]
        assert sorted(got) == sorted(expected)
        assert {own[step][1] for own in together} == {total} == {len(expected)}
    for half in (alone[: plan.steps], alone[plan.steps :]):
        assert sorted(number for numbers, _ in half for number in numbers) == x.tolist()
    first = data.draw(st.integers(0, steps - 1))
    assert numbers_of(of_one, 0, steps, first) == alone[first:]
