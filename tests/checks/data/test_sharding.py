"""The arithmetic against the trainer's, which is imported from the skeleton."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.checks.data import cluster_fit
from distlaunch.checks.data.cluster_fit import TrainingMachines
from distlaunch.checks.data.sharding import BatchOptions, ShardPlan

TESTS = Path(__file__).parents[2]
GOLDEN = json.loads((TESTS / "golden" / "plan.json").read_text())["cases"]

sys.path.insert(0, str(TESTS.parent / "trainer_skeleton" / "base"))
from trainer.distributed.errors import PlanError  # noqa: E402 - found by the path just set
from trainer.distributed.plan import Plan, Shares, coverage_note  # noqa: E402

sys.path.pop(0)

SIZES = st.integers(1, 16)


def trainer_error(*plan: object, of: type = Plan) -> str:
    """Return why the trainer refuses a plan, empty where it accepts it."""
    try:
        of(*plan)
    except PlanError as problem:
        return str(problem)
    return ""


def codes(plan: ShardPlan, options: BatchOptions, machines: TrainingMachines) -> list[str]:
    problems = [
        *cluster_fit.plan_problems(plan, options, machines),
        *cluster_fit.example_problems("training", plan.examples, machines, "trainer/data.py"),
    ]
    return [problem.code for problem in problems]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])
def test_plans_of_the_golden_file(case, project):
    project.use_cluster(case["tasks"], case["gpus"])
    project.change(args=tuple(case["arguments"]))
    project.ran({"kind": "arrays", "examples": case["examples"]})
    facts, problems = project.check()
    assert [each.code for each in problems] == ([case["code"]] if "code" in case else [])
    assert all(
        word in f"{each.what} {each.remedy}" for each in problems for word in case["figures"]
    )
    if "plan" in case:
        plan = dict(case["plan"])
        if steps := [int(each.split("=")[1]) for each in case["arguments"] if "steps" in each]:
            plan |= {"steps": steps[0], "last_rows": None}
        found = facts.as_json() | {"steps": facts.as_json()["steps_per_epoch"]}
        assert plan == {key: found[key] for key in plan} | {"rows": list(found["rows"])}


@given(st.integers(0, 300), st.integers(1, 200), SIZES, st.integers(0, 4), st.integers(1, 48))
def test_a_plan_is_an_error_where_the_trainer_refuses_it(examples, batch, count, gpus, shards):
    machines = TrainingMachines(count, gpus)
    plan = ShardPlan(machines.replicas, batch, shards, examples)
    found = codes(plan, BatchOptions(shards=shards), machines)
    assert bool(found) == bool(trainer_error(examples, batch, machines.replicas, shards))


@given(SIZES, st.integers(1, 6), st.integers(0, 2000), st.integers(0, 300))
def test_steps_and_rows_are_those_of_the_trainer(replicas, each, more, rows):
    examples, batch, shards = replicas + more, replicas + rows, replicas * each
    plan = ShardPlan(replicas, batch, shards, examples)
    theirs = Plan(examples, batch, replicas, shards)
    full = range(max(examples // batch, 1))
    counts = [theirs.rows(step, replica) for step in full for replica in range(replicas)]
    assert plan.steps == theirs.steps
    assert plan.rows == (min(counts), max(counts))
    assert plan.last_rows == theirs.global_rows(theirs.steps - 1)
    assert [plan.rows_seen(n) for n in range(50)] == [theirs.examples_seen(n) for n in range(50)]


@given(st.integers(1, 2000), st.integers(1, 300), st.integers(1, 100))
def test_steps_are_warned_of_where_the_trainer_warns(examples, batch, steps):
    note = coverage_note(Plan(examples, batch, 1, 1), steps)
    plan = ShardPlan(1, batch, 1, examples)
    problems = cluster_fit.step_problems(plan, BatchOptions(steps=steps))
    words = {"steps-partial": "covers", "steps-repeat": "sees each example"}
    assert [words[each.code] in (note or "") for each in problems] == [True] * (note is not None)


@given(SIZES, st.integers(1, 200))
def test_a_dataset_batch_is_an_error_where_the_trainer_refuses_it(replicas, batch):
    plan = ShardPlan(replicas, batch, None)
    problems = list(cluster_fit.dataset_batch_problems(plan, BatchOptions(), "trainer/data.py"))
    refusal = trainer_error((1,) * replicas, batch, of=Shares)
    assert [each.code for each in problems] == (["batch-clash"] if refusal else [])
    assert all(each.remedy.removeprefix("write ") in refusal for each in problems)


@given(st.integers(2, 40), st.integers(0, 4), st.integers(1, 48))
def test_each_size_in_a_remedy_is_accepted(count, gpus, shards):
    machines = TrainingMachines(count, gpus)
    plan = ShardPlan(machines.replicas, 10_000, shards, 10_000)
    for problem in cluster_fit.plan_problems(plan, BatchOptions(), machines):
        assert problem.code == "shards-not-divided"
        workers = machines.worker_counts(plan.allowed_replicas)
        assert all(str(each) in problem.remedy for each in workers[:11])
        for each in workers:
            other = TrainingMachines(each + 1, gpus)
            accepted = ShardPlan(other.replicas, 10_000, shards, 10_000)
            assert not codes(accepted, BatchOptions(), other)
        enough = int(problem.remedy.rpartition("=")[2].split()[0])
        assert not trainer_error(10_000, 10_000, machines.replicas, enough)
