from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.errors import UsageError
from distlaunch.job.choices import job_choices
from distlaunch.job.model import Cluster, Job, Machine, MachineChoice, Pool, Scheduling
from distlaunch.job.tasks import Task

SMALL = Machine("n1-standard-4")
BIG = Machine("n1-standard-8", "NVIDIA_TESLA_T4", 1)

tasks = st.just(Task("chief")) | st.builds(
    Task, st.sampled_from(["worker", "ps", "evaluator"]), st.integers(0, 10_000)
)


@given(tasks)
def test_a_task_is_read_back_from_its_name(task):
    assert Task.parse(str(task)) == task


@pytest.mark.parametrize(
    "name",
    ["", "worker", "worker:", "worker:-1", "worker:01", "worker:٣", "chief:0", "ps:1 ", "x:0"],
)
def test_what_is_no_task_is_refused(name):
    with pytest.raises(UsageError, match="is not a task; expected chief, worker:N, ps:N or"):
        Task.parse(name)


def test_description():
    assert Cluster(Pool(SMALL), Pool(SMALL, 0)).describe() == "1 task: chief"
    cluster = Cluster(Pool(SMALL), Pool(SMALL, 2), Pool(SMALL), Pool(SMALL))
    parts = "chief + 2 workers + 1 parameter server + 1 evaluator"
    assert cluster.describe() == f"5 tasks: {parts}"


@given(st.integers(1, 50))
def test_training_tasks_are_counted_with_the_chief(count):
    cluster = Cluster(Pool(SMALL), Pool(BIG, 3), Pool(SMALL), Pool(SMALL))
    changed = cluster.with_training_tasks(count)
    assert sum(task.is_training for task in changed.tasks()) == count
    assert len(changed.tasks()) == count + 2
    assert changed.workers is None or changed.workers.machine == BIG
    new = Cluster(Pool(BIG)).with_training_tasks(count).workers  # like the chief, which remains
    assert new == (Pool(BIG, count - 1) if count > 1 else None)
    with pytest.raises(UsageError, match="expected 1 training task or more, got 0"):
        cluster.with_training_tasks(0)


def test_machines_replace_those_of_pools_like_the_chief_or_of_named_pools():
    cluster = Cluster(Pool(BIG), Pool(BIG, 3), Pool(SMALL, 2))
    huge = Machine("a2-highgpu-1g", "NVIDIA_TESLA_A100", 1)
    assert cluster.with_machines(MachineChoice(huge)) == Cluster(
        Pool(huge), Pool(huge, 3), Pool(SMALL, 2)
    )
    named = MachineChoice(pools={"workers": huge, "evaluators": huge})
    assert cluster.with_machines(named) == Cluster(Pool(BIG), Pool(huge, 3), Pool(SMALL, 2))


MACHINES = st.sampled_from(["n1-standard-8", "g2-standard-8", "a2-highgpu-1g"]).map(Machine)
SEVERAL = st.lists(MACHINES.map(MachineChoice), max_size=4).map(tuple)
IN_REGIONS = st.lists(st.sampled_from(["us-central1", "us-east4", "europe-west4"]), max_size=4)


@given(MACHINES, SEVERAL, IN_REGIONS.map(tuple), st.sampled_from(["next-machine", "next-region"]))
def test_each_machine_is_tried_once_in_each_region_the_jobs_own_first(own, others, regions, order):
    scheduling = Scheduling(regions=regions, machines=others, on_stockout=order)
    job = Job("digits", Cluster(Pool(own)), region="us-central1", scheduling=scheduling)
    machines = list(dict.fromkeys([own, *(each.machine for each in others)]))
    places = list(dict.fromkeys(["us-central1", *regions]))
    tried = [(choice.cluster.chief.machine, choice.region) for choice in job_choices(job)]
    assert tried[0] == (own, "us-central1")
    first, second = (1, 0) if order == "next-machine" else (0, 1)
    ranks = (machines.index, places.index)
    assert tried == sorted(
        ((machine, place) for machine in machines for place in places),
        key=lambda each: (ranks[first](each[first]), ranks[second](each[second])),
    )


def test_a_job_that_must_not_move_has_no_other_choice():
    others = (MachineChoice(BIG),)
    scheduling = Scheduling(regions=("us-east4",), machines=others, on_stockout="fail")
    job = Job("digits", Cluster(Pool(SMALL)), region="us-central1", scheduling=scheduling)
    assert job_choices(job) == (job,)
    assert not job.has_gpus
