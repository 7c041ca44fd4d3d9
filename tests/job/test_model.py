from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.errors import UsageError
from distlaunch.job.model import Cluster, Machine, Pool, Task

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
