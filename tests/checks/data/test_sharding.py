"""The arithmetic against the trainer's own, which is imported from the skeleton."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.checks.data import cluster_fit
from distlaunch.checks.data.cluster_fit import Machines
from distlaunch.checks.data.sharding import Dealing, Told

from .conftest import tfrecords

TESTS = Path(__file__).parents[2]
GOLDEN = json.loads((TESTS / "golden" / "plan.json").read_text())["cases"]

sys.path.insert(0, str(TESTS.parent / "trainer_skeleton" / "base"))
from trainer.distributed.errors import PlanError  # noqa: E402 - found by the path just set
from trainer.distributed.plan import Plan, Shares, coverage_note  # noqa: E402

sys.path.pop(0)

SIZES = st.integers(1, 16)


def refused(*plan: object, of: type = Plan) -> str:
    """Return why the trainer refuses a plan, nothing where it takes it."""
    try:
        of(*plan)
    except PlanError as problem:
        return str(problem)
    return ""


def found(deal: Dealing, told: Told, machines: Machines) -> list[str]:
    problems = [
        *cluster_fit.of_cluster(deal, told, machines),
        *cluster_fit.of_examples(deal, "trainer/data.py:1", machines, "training"),
    ]
    return [problem.code for problem in problems]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])
def test_the_plan_is_the_one_that_the_trainer_makes(case, project):
    project.runs_on(case["tasks"], case["gpus"], kind="one-that-takes-any-number")
    project.has(args=tuple(case["arguments"]))
    project.write("data/golden.tfrecord", tfrecords([b"x"] * case["examples"]))
    project.reads('"data/golden.tfrecord"')
    facts, problems = project.look()
    assert [each.code for each in problems] == ([case["code"]] if "code" in case else [])
    assert all(
        word in f"{each.what} {each.remedy}" for each in problems for word in case["figures"]
    )
    if "plan" in case:
        plan = dict(case["plan"])
        if told := [int(each.split("=")[1]) for each in case["arguments"] if "steps" in each]:
            plan |= {"steps": told[0], "last_rows": None}
        assert plan == {
            "replicas": facts.replicas,
            "global_batch": facts.global_batch,
            "shards": facts.shards,
            "steps": facts.steps_per_epoch,
            "rows": list(facts.rows),
            "last_rows": facts.last_rows,
        }


@given(st.integers(0, 300), st.integers(1, 200), SIZES, st.integers(0, 4), st.integers(1, 48))
def test_a_plan_is_refused_where_the_trainer_refuses_it(examples, batch, count, gpus, shards):
    machines = Machines(count, gpus)
    deal = Dealing(machines.replicas, batch, shards, examples)
    codes = found(deal, Told(shards=shards), machines)
    assert bool(codes) == bool(refused(examples, batch, machines.replicas, shards))


@given(SIZES, st.integers(1, 6), st.integers(0, 2000), st.integers(0, 300))
def test_steps_and_rows_are_the_trainer_s(replicas, each, more, rows):
    examples, batch, shards = replicas + more, replicas + rows, replicas * each
    deal, plan = Dealing(replicas, batch, shards, examples), Plan(examples, batch, replicas, shards)
    full = range(max(examples // batch, 1))
    dealt = [plan.rows(step, replica) for step in full for replica in range(replicas)]
    assert deal.steps == plan.steps
    assert deal.rows == (min(dealt), max(dealt))
    assert deal.last_rows == plan.global_rows(plan.steps - 1)
    assert [deal.seen(n) for n in range(50)] == [plan.examples_seen(n) for n in range(50)]


@given(st.integers(1, 2000), st.integers(1, 300), st.integers(1, 100))
def test_the_trainer_warns_of_the_same_steps(examples, batch, steps):
    deal, note = Dealing(1, batch, 1, examples), coverage_note(Plan(examples, batch, 1, 1), steps)
    problems = list(cluster_fit.of_steps(deal, Told(steps=steps), is_all=True))
    told = {"steps-partial": "covers", "steps-repeat": "sees each example"}
    assert [told[each.code] in (note or "") for each in problems] == [True] * (note is not None)


@given(SIZES, st.integers(1, 200))
def test_a_batch_of_the_user_s_own_is_refused_where_the_trainer_refuses_it(replicas, batch):
    problems = list(
        cluster_fit.of_own_batch(Dealing(replicas, batch, None), Told(), "trainer/data.py:1")
    )
    why = refused((1,) * replicas, batch, of=Shares)
    assert [each.code for each in problems] == (["batch-clash"] if why else [])
    assert all(each.remedy.removeprefix("write ") in why for each in problems)


@given(st.integers(2, 40), st.integers(0, 4), st.integers(1, 48))
def test_each_size_that_is_named_is_taken(count, gpus, shards):
    machines = Machines(count, gpus)
    deal = Dealing(machines.replicas, 10_000, shards, 10_000)
    for problem in cluster_fit.of_cluster(deal, Told(), machines):
        assert problem.code == "shards-not-divided"
        workers = machines.workers(deal.fitting)
        assert all(str(each) in problem.remedy for each in workers[:11])
        for each in workers:
            other = Machines(each + 1, gpus)
            assert not found(Dealing(other.replicas, 10_000, shards, 10_000), Told(), other)
        enough = int(problem.remedy.rpartition("=")[2].split()[0])
        assert not refused(10_000, 10_000, machines.replicas, enough)
