from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.distributed.errors import PlanError
from trainer.distributed.plan import Plan, coverage_note


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    replicas = draw(st.integers(1, 16))
    shards = replicas * draw(st.integers(1, 6))
    examples = draw(st.integers(replicas, 5000))
    # Batches of a few rows would make thousands of steps.
    batch = draw(st.integers(max(replicas, examples // 60), 6000))
    return Plan(examples, batch, replicas, shards)


def positions(plan: Plan, replica: int) -> list[list[int]]:
    """Return the positions that a replica reads in each step, as its shards' readers give them."""
    steps = []
    for step in range(plan.steps):
        steps.append([])
        for shard in plan.shards_of(replica):
            items = range(plan.done_in_shard(shard, step), plan.done_in_shard(shard, step + 1))
            steps[-1].extend(plan.position_of(shard, item) for item in items)
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
    assert plan.may_lack_rows == any(0 in counts for counts in rows)


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
        plan = Plan(examples, batch, replicas, shards)
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
        ((8, 0), "the global batch must be 1 or more, got 0"),
        ((8, -3), "the global batch must be 1 or more, got -3"),
        ((8, 8, 1, 0), "--shards must be 1 or more, got 0"),
        (
            (80, 80, 5, 12),
            "5 replicas do not divide the 12 logical shards: use 1, 2, 3, 4, 6, 12 replicas, or "
            "start a new job with --shards 20",
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
        Plan(*plan)
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
    assert coverage_note(Plan(examples, 64, 2), steps) == expected
