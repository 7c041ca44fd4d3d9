"""The arithmetic against the trainer's, which is imported from the skeleton."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.checks.data import sharding
from distlaunch.checks.data.sharding import DataPlan, TrainingMachines
from distlaunch.checks.trainer import parse_arguments

TESTS = Path(__file__).parents[2]
GOLDEN = json.loads((TESTS / "golden" / "plan.json").read_text())["cases"]

sys.path.insert(0, str(TESTS.parent / "trainer_skeleton" / "base"))
from distlaunch_trainer.errors import PlanError  # noqa: E402 - found by the path just set
from distlaunch_trainer.input.order.plan import BatchPlan, SharedBatchPlan, coverage_note  # noqa: E402

sys.path.pop(0)

SIZES = st.integers(1, 16)
SOURCE = "trainer/data.py"


def trainer_error(*plan: object, of: type = BatchPlan) -> str:
    """Return why the trainer refuses a plan, empty where it accepts it."""
    try:
        of(*plan)
    except PlanError as problem:
        return str(problem)
    return ""


def check(machines: TrainingMachines, batch: int, shards: int | None, examples=None, steps=None):
    options, _ = parse_arguments([])
    plan = DataPlan(machines.replicas, batch, shards, examples, steps)
    problems = list(sharding.problems(plan, options, machines, SOURCE))
    if examples is not None:
        problems += sharding.example_problems("training", examples, machines, SOURCE)
    return problems


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])
def test_plans_of_the_golden_file(case, whole):
    whole.ran({"kind": "arrays", "examples": case["examples"]})
    args = ", ".join(f"'{word}'" for word in case["arguments"])
    plan, problems = whole.data(whole.cluster(case["tasks"], case["gpus"]), f"args=[{args}]")
    assert [each.code for each in problems] == ([case["code"]] if "code" in case else [])
    assert all(
        word in f"{each.what} {each.remedy}" for each in problems for word in case["figures"]
    )
    if "plan" in case:
        expected = dict(case["plan"])
        expected["steps_per_epoch"] = expected.pop("steps")
        if steps := [int(each.split("=")[1]) for each in case["arguments"] if "steps" in each]:
            expected |= {"steps_per_epoch": steps[0], "last_rows": None}
        actual = json.loads(json.dumps(plan.as_json()))
        assert expected == {key: actual[key] for key in expected}


@given(st.integers(0, 300), st.integers(1, 200), SIZES, st.integers(0, 4), st.integers(1, 48))
def test_a_plan_is_an_error_where_the_trainer_refuses_it(examples, batch, count, gpus, shards):
    machines = TrainingMachines(count, gpus)
    problems = check(machines, batch, shards, examples)
    assert bool(problems) == bool(trainer_error(examples, batch, machines.replicas, shards))


@given(SIZES, st.integers(1, 6), st.integers(0, 2000), st.integers(0, 300))
def test_steps_and_rows_are_those_of_the_trainer(replicas, factor, more, rows):
    examples, batch, shards = replicas + more, replicas + rows, replicas * factor
    plan = DataPlan(replicas, batch, shards, examples)
    theirs = BatchPlan(examples, batch, replicas, shards)
    full = range(max(examples // batch, 1))
    counts = [theirs.rows(step, replica) for step in full for replica in range(replicas)]
    assert plan.steps == theirs.steps
    assert plan.rows == (min(counts), max(counts))
    assert plan.last_rows == theirs.global_rows(theirs.steps - 1)


@given(st.integers(1, 2000), st.integers(1, 300), st.integers(1, 100))
def test_steps_are_warned_of_where_the_trainer_warns(examples, batch, steps):
    theirs = BatchPlan(examples, batch, 1, 1)
    note = coverage_note(theirs, steps)
    problems = check(TrainingMachines(1, 0), batch, 1, examples, steps)
    words = {"steps-partial": "covers", "steps-repeat": "sees each example"}
    assert [words[each.code] in (note or "") for each in problems] == [True] * (note is not None)
    if steps > theirs.steps:
        times = theirs.examples_seen(steps) * 10 // examples / 10
        assert f"examples {times} times" in problems[0].what


@given(SIZES, st.integers(1, 200))
def test_a_dataset_batch_is_an_error_where_the_trainer_refuses_it(replicas, batch):
    problems = check(TrainingMachines(replicas, 0), batch, None)
    refusal = trainer_error(batch, replicas, of=SharedBatchPlan)
    assert [each.code for each in problems] == (["batch-idle"] if refusal else [])
    assert all(each.remedy.removeprefix("write ") in refusal for each in problems)


@given(st.integers(2, 40), st.integers(0, 4), st.integers(1, 48))
def test_each_size_in_a_remedy_is_accepted(count, gpus, shards):
    machines = TrainingMachines(count, gpus)
    for problem in check(machines, 10_000, shards):
        assert problem.code == "shards-not-divided"
        allowed = DataPlan(machines.replicas, 10_000, shards).allowed_replicas
        workers = machines.worker_counts(allowed)
        assert all(str(each) in problem.remedy for each in workers)
        for each in workers:
            assert not check(TrainingMachines(each + 1, gpus), 10_000, shards, 10_000)
        enough = int(problem.remedy.rpartition("=")[2].split()[0])
        assert not trainer_error(10_000, 10_000, machines.replicas, enough)
