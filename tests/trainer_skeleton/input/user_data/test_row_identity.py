"""An audit of a user's own data: each row of a pass by its position, on any number of tasks."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer.errors import DataError, PlanError

from ...conftest import task_of  # noqa: TID252 - tests are no package
from .reading import loaded

Dataset = tf.data.Dataset


@pytest.fixture(autouse=True)
def _audited(monkeypatch):
    monkeypatch.setenv("DISTLAUNCH_AUDIT", "1")


def positions(create, task, *arguments, passes=2):
    """Return the positions of the rows that a task trains on in each pass."""
    events = []
    report = SimpleNamespace(warn=str, log=str, event=lambda _, **facts: events.append(facts))
    data = loaded(create, task, *arguments, report=report)
    reader = data.training.reader(task)
    found = []
    for number in range(passes):
        reader.begin(number)
        for _ in range(reader.steps):
            for _ in task.replica_ids:
                _, own, *_, identity = reader.iterator.get_next()
                data.audit.record(identity.numpy()[: int(own)])
        reader.end(reader.steps)
        data.audit.flush(number, number + 1)
        seen = [event for event in events if event["kind"] == "seen"][-1]["positions"]
        found.append([n for first, count in seen for n in range(first, first + count)])
    return found, data.audit.examples


def shuffled():
    return Dataset.range(41).shuffle(9).map(lambda n: (n, n * 2)).batch(6)


def augmented():
    """Rows that differ each time they are read."""
    return (
        Dataset.range(41).map(lambda n: n * 100 + tf.random.uniform([], 0, 99, tf.int64)).batch(6)
    )


def padded():
    rows = Dataset.range(1, 42).map(lambda n: tf.fill([n % 7 + 1], n))
    return rows.shuffle(20).filter(lambda n: tf.size(n) > 0).padded_batch(6)


@pytest.mark.parametrize("create", [shuffled, augmented, padded])
@pytest.mark.parametrize(("tasks", "replicas"), [(1, 1), (2, 1), (3, 2)])
def test_each_position_is_seen_once_in_a_pass(create, tasks, replicas):
    of_tasks = [positions(create, task_of(rank, tasks, replicas)) for rank in range(tasks)]
    for number in range(2):
        seen = [n for found, _ in of_tasks for n in found[number]]
        assert sorted(seen) == list(range(41))
    assert {examples for _, examples in of_tasks} == {41}


def test_the_same_data_on_all_tasks_without_a_policy_are_seen_by_each():
    for rank in range(2):
        found, examples = positions(shuffled, task_of(rank, 2), "--shard-policy=off")
        assert (found, examples) == ([list(range(41))] * 2, 41)


def test_rows_that_cannot_be_read_twice_are_refused():
    def changing():
        rows = Dataset.range(41).map(
            lambda n: tf.numpy_function(
                lambda n: n + np.random.default_rng().random(), [n], tf.double
            )
        )
        return rows.map(lambda n: tf.ensure_shape(n, [])).batch(6)

    with pytest.raises(DataError, match="rows that were trained on are others than those of a fir"):
        positions(changing, task_of(0, 1))
    with pytest.raises(PlanError, match="the data set has no end that is known: leave it out"):
        positions(lambda: shuffled().repeat(), task_of(0, 1), "--steps-per-epoch=3")
    with pytest.raises(PlanError, match=r"the generator has no end that is known: leave it out"):
        positions(lambda: iter([np.zeros(4)] * 3), task_of(0, 1), "--steps-per-epoch=3")
    with pytest.raises(PlanError, match=r"random operations of the data set of trainer.data.py"):
        positions(augmented, task_of(0, 2), "--shard-policy=off")
