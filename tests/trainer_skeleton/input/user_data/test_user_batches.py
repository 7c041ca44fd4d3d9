"""A user's own batches: each row once in a pass, on any number of tasks and replicas."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer.errors import DataError, PlanError

from ...conftest import task_of  # noqa: TID252 - tests are no package
from .reading import (
    of_keras,
    of_project,
    of_script,
    read_epoch,
    resumed,
    together,
)

Dataset = tf.data.Dataset


def in_project(create, *arguments):
    return lambda task: of_project(create, task, *arguments)


def in_script(create, **options):
    return lambda task: of_script(create, task, **options)


def numbers(count):
    return Dataset.range(1, count + 1)


def shuffled():
    return numbers(101).shuffle(50).map(lambda n: (n, n)).batch(10)


def padded():
    return numbers(101).map(lambda n: tf.fill([n % 7 + 1], n)).shuffle(20).padded_batch(10)


def bucketed():
    rows = numbers(101).map(lambda n: tf.fill([n % 7 + 1], n))
    return rows.bucket_by_sequence_length(tf.size, [3, 5], [16, 12, 8])


def ragged():
    rows = numbers(101).map(lambda n: tf.fill([n % 7 + 1], n))
    return rows.ragged_batch(10).map(lambda batch: ({"tokens": batch}, batch.row_lengths()))


def sparse():
    rows = numbers(101).map(lambda n: tf.sparse.from_dense(tf.stack([n, 0, n % 3])))
    return rows.batch(10).map(lambda batch: (batch, None))


def small_batches():
    return numbers(31).batch(12).map(lambda n: (n, None))


CASES = [
    *((shuffled, tasks, replicas) for tasks, replicas in ((1, 2), (3, 1), (2, 2))),
    (padded, 2, 1),
    (bucketed, 3, 1),
    (ragged, 2, 2),
    (sparse, 3, 1),
    (small_batches, 2, 4),
]


@pytest.mark.parametrize(("create", "tasks", "replicas"), CASES)
def test_passes_are_those_of_keras_on_any_number_of_replicas(create, tasks, replicas):
    is_counted = create().cardinality() < 0
    expected = of_keras(create, 3, is_counted=is_counted)
    assert together(in_project(create), tasks, replicas, 3) == expected
    for one_pass in expected:
        assert set(Counter(chain(*one_pass)).values()) == {1}
    if not is_counted:
        assert together(in_script(create), tasks, replicas, 3) == expected


@pytest.mark.parametrize("rows", [53, 49])
def test_what_drop_remainder_leaves_out_of_unknown_rows_is_no_batch(rows):
    create = lambda: numbers(rows).filter(lambda n: n > 0).batch(8, drop_remainder=True)  # noqa: E731
    expected = of_keras(create, 3)
    assert [len(batch) for batch in expected[2]] == [8] * 6
    assert together(in_project(create), 2, 1, 3) == expected
    assert together(in_script(create), 2, 1, 3) == expected


def chosen_anew():
    """Rows of which each pass has others, and other numbers of them."""
    return numbers(40).shuffle(40).take(25).filter(lambda n: n % 3 > 0).batch(4)


def test_passes_of_other_lengths_are_whole():
    expected = of_keras(chosen_anew, 4, is_counted=True)
    assert len({len(one_pass) for one_pass in expected}) > 1
    assert together(in_project(chosen_anew), 2, 1, 4) == expected
    assert together(in_script(chosen_anew), 2, 2, 4) == of_keras(chosen_anew, 4)


MAPPED = lambda: numbers(101).batch(10).map(lambda n: n[n > 5])  # noqa: E731


@pytest.mark.parametrize(
    ("create", "replicas", "steps"),
    [
        (lambda: numbers(101).batch(10).prefetch(1), 2, {10}),
        (lambda: numbers(102).batch(10).cache(), 2, set()),
        (lambda: numbers(101).filter(lambda n: n > 0).padded_batch(10), 2, {10}),
        (lambda: numbers(101).batch(10).take(3), 2, {0, 1, 2}),
        (lambda: numbers(101).batch(10).repeat(2), 2, set(range(22))),
        (MAPPED, 2, set(range(11))),
        (lambda: numbers(101).batch(10, drop_remainder=True), 2, set()),
    ],
)
def test_steps_that_may_leave_replicas_idle(create, replicas, steps):
    """By the type of the data set: the last batch alone may be small, or any one."""
    data = of_project(create, task_of(0, 1, replicas))
    count = data.plan.steps
    assert {step for step in range(count) if data.may_leave_replicas_idle(step)} == steps


def test_rows_that_were_counted_are_made_by_one_task_each():
    def create():
        return numbers(53).filter(lambda n: n > 2).map(lambda n: n * 1).batch(10)

    lines = []
    of_project(create, task_of(0, 2), report=SimpleNamespace(warn=str, log=lines.append))
    assert lines[-1] == "input: each task makes its own rows alone (MapDataset, BatchDatasetV2)"
    assert together(in_project(create), 2, 1, 3) == of_keras(create, 3, is_counted=True)


@pytest.mark.parametrize("shared", ["in_project", "in_script"])
def test_a_step_with_other_rows_on_another_task_is_an_error(shared):
    open_data = {"in_project": in_project, "in_script": in_script}[shared]
    create = lambda: numbers(12).shuffle(9).take(9).filter(lambda n: n > 0).batch(4)  # noqa: E731
    task = task_of(0, 2, 2)
    reader = open_data(create)(task).reader(task)
    reader.begin(0)
    assert not reader.is_end(np.array([4, 4, 4, 4]), 0)
    what = "the data (set of trainer/data.py|of fit.*)"
    with pytest.raises(DataError, match=f"{what} end after 1 batches on worker:1, and go on on w"):
        reader.is_end(np.array([4, 4, -1, -1]), 1)
    with pytest.raises(DataError, match="batch 3, which has 4 rows on worker:0 and 1 on worker:1"):
        reader.is_end(np.array([4, 4, 1, 1]), 2)


def own_rows(rank, rows=(25, 7)):
    """A data set that training() gives one task: its rows begin at 100 times its number."""
    return numbers(rows[rank]).map(lambda n: n + 100 * (rank + 1)).batch(6)


def own_epochs(task, epochs, start=None, **options):
    """Return the rows of a task in each step of epochs, without a policy, and the data."""
    create = lambda: own_rows(task.role.rank)  # noqa: E731
    data = of_project(create, task, "--shard-policy=off", start=start, **options)
    reader = data.reader(task, start and start.progress)
    found = []
    for number in range(epochs):
        reader.begin(5 * number)
        steps = [[reader.iterator.get_next() for _ in task.replica_ids] for _ in range(5)]
        found.append([sorted(chain(*(d.numpy()[: int(n)] for d, n in step))) for step in steps])
        reader.end(5)
    return found, data


@pytest.mark.parametrize("replicas", [1, 2])
def test_without_a_policy_a_step_has_a_batch_of_every_task(replicas):
    """The tasks have 5 batches and 2."""
    for rank, count, batches in zip((0, 1), (25, 7), (5, 2), strict=True):
        epochs, data = own_epochs(task_of(rank, 2, replicas, [5, 2]), 2)
        assert (data.plan.steps, data.plan.global_batch) == (5, 12)
        idle = [data.may_leave_replicas_idle(step) for step in range(10)]
        assert idle == 2 * [False, *[True] * 4]
        first = epochs[0][0][0] // 100 * 100
        for one_pass in epochs:
            assert sorted(chain(*one_pass)) == list(range(first + 1, first + count + 1))
            assert not any(one_pass[batches:])


def test_without_a_policy_idle_tasks_and_equal_data_are_warned_of():
    warned = []
    report = SimpleNamespace(warn=warned.append, log=str)
    create = lambda: own_rows(0)  # noqa: E731
    of_project(create, task_of(0, 2, counts=[5, 2]), "--shard-policy=off", report=report)
    assert "(worker:0 5, worker:1 2): those with fewer are idle at the end; --shard-" in warned[0]
    assert "all 2 tasks read the same data, so an epoch sees each row 2 times" in warned[1]


def test_without_a_policy_batches_are_counted_if_their_number_is_unknown():
    create = lambda: own_rows(0).filter(lambda _: True)  # noqa: E731
    lines = []
    report = SimpleNamespace(warn=str, log=lines.append)
    data = of_project(create, task_of(0, 2), "--shard-policy=off", report=report)
    assert data.plan.steps == 5
    assert lines[1:] == [
        "reading the data set of trainer/data.py to count its batches",
        "the data set of trainer/data.py: each task has its own batches, as --shard-policy is off "
        "(worker:0 5, worker:1 5); a step trains on one of every task",
    ]


def test_without_a_policy_data_may_have_no_end():
    create = lambda: own_rows(0).unbatch().repeat().batch(6)  # noqa: E731
    options = ("--shard-policy=off", "--steps-per-epoch=7")
    data = of_project(create, task_of(0, 2, counts=[-1, -1]), *options)
    assert (data.plan.steps, data.may_leave_replicas_idle(3)) == (None, False)
    message = r"no batches, or no end, on some tasks only \(worker:0 no end, worker:1 4\)"
    with pytest.raises(DataError, match=message):
        of_project(create, task_of(0, 2, counts=[-1, 4]), *options)


def test_a_pass_is_counted_only_if_nothing_gives_its_length():
    read = []

    def create(options=""):
        note = lambda n: tf.py_function(lambda n: read.append(int(n)) or n, [n], tf.int64)  # noqa: E731
        rows = numbers(400).map(note).map(lambda n: tf.ensure_shape(n, []))
        return (rows.filter(lambda n: n > 0) if "filter" in options else rows).batch(8)

    alone = task_of(0, 1)
    assert of_project(create, alone).plan.steps == 50
    assert not read
    data = of_project(lambda: create("filter"), alone, "--steps-per-epoch=3")
    assert data.plan.steps is None
    assert not read
    assert of_project(lambda: create("filter"), alone).plan.steps == 50
    assert max(read) == 400


def epochs_of(create, task, arguments, steps, start=None, *, count=4, most=None):
    """Return epochs of the data of a project, and the reader."""
    data = of_project(create, task, *arguments, start=start)
    reader = data.reader(task, start and start.progress)
    return [read_epoch(reader, task, number * steps, most=most) for number in range(count)], reader


@pytest.mark.parametrize("kind", [shuffled, small_batches, chosen_anew])
def test_a_run_resumes_as_if_it_had_not_stopped(kind):
    """Between two epochs, and within one."""
    task = task_of(0, 2)
    expected, _ = epochs_of(kind, task, (), 20)
    _, stopped = epochs_of(kind, task, (), 20, count=2)
    start = resumed(40, 2, stopped.position)
    assert epochs_of(kind, task, (), 20, start, count=2)[0] == expected[2:]
    read_epoch(stopped, task, 40, most=1)
    start = resumed(41, 2, stopped.position, begun=True)
    data = of_project(kind, task, start=start)
    reader = data.reader(task, start.progress)
    assert read_epoch(reader, task, 40, done=1) == expected[2][1:]
    assert read_epoch(reader, task, 60) == expected[3]


@pytest.mark.parametrize("is_counted", [True, False])
def test_epochs_of_other_steps_go_on_in_the_next_pass(is_counted):
    def create():
        rows = numbers(23) if is_counted else numbers(23).filter(lambda n: n > 0)
        return rows.batch(5)

    task, options = task_of(0, 1), ("--steps-per-epoch=3",)
    epochs, reader = epochs_of(create, task, options, 3)
    rows = [step[0] for epoch in epochs for step in epoch]
    passes = [batch.numpy().tolist() for batch in create()] * 3
    assert rows == passes[:12]
    for epoch in (1, 3):
        start = resumed(3 * epoch, epoch, [1, 3 * epoch, 0])
        assert start.progress.position[2:] == reader.position[2:]
        after, _ = epochs_of(create, task, options, 3, start, count=1)
        assert [step[0] for step in after[0]] == passes[3 * epoch :][:3]
    other_data = resumed(9, 3, [])  # which begin with their first pass
    after, _ = epochs_of(create, task, options, 3, other_data, count=1)
    assert [step[0] for step in after[0]] == passes[:3]


class Squares(keras.utils.PyDataset):
    """Rows 1 to 23 in batches of 5, in an order that its hook changes."""

    def __init__(self, **options):
        super().__init__(**options)
        self.rows = np.arange(1, 24)
        self.calls = []

    def __len__(self):
        return 5

    def __getitem__(self, number):
        x = self.rows[number * 5 : number * 5 + 5]
        return x, x / 2

    def on_epoch_begin(self):
        self.calls.append("begin")

    def on_epoch_end(self):
        self.calls.append("end")
        np.random.default_rng(len(self.calls)).shuffle(self.rows)


@pytest.mark.parametrize("options", [{}, {"workers": 3, "max_queue_size": 2}])
@pytest.mark.parametrize("tasks", [1, 2])
def test_a_py_dataset_has_the_order_of_keras(options, tasks):
    create = lambda: Squares(**options)  # noqa: E731
    expected = of_keras(create, 3, shuffle=True)
    assert [sorted(chain(*epoch)) for epoch in expected] == [list(range(1, 24))] * 3
    assert expected[0] != expected[1]
    assert together(in_script(create, shuffle=True), tasks, 1, 3) == expected
    assert together(in_project(create), tasks, 1, 3) == expected
    assert together(in_project(create, "--shuffle=0"), tasks, 1, 3) == of_keras(create, 3)


class Shrinks(Squares):
    """Has another number of batches in each pass."""

    lengths = 4, 5, 3, 4, 2, 2

    def __len__(self):
        return self.lengths[len([call for call in self.calls if call == "end"])]


@pytest.mark.parametrize("tasks", [1, 2])
def test_passes_of_a_py_dataset_are_at_most_as_long_as_it_was_at_first(tasks):
    epochs = together(in_script(Shrinks), tasks, 1, 4)
    assert [len(epoch) for epoch in epochs] == [4, 3, 4, 2]


@pytest.mark.parametrize("options", [{}, {"workers": 3, "max_queue_size": 2}])
def test_a_py_dataset_resumes_in_its_order(options):
    create, task = lambda: Squares(**options), task_of(0, 1)
    expected, _ = epochs_of(create, task, (), 5)
    assert epochs_of(create, task, (), 5, resumed(10, 2, [4, 0, 5]), count=2)[0] == expected[2:]
    start = resumed(12, 2, [5, 0, 5], begun=True)
    reader = of_project(create, task, start=start).reader(task, start.progress)
    assert read_epoch(reader, task, 10, done=2) == expected[2][2:]
    assert read_epoch(reader, task, 15) == expected[3]


def test_a_generator_goes_on_over_epochs_and_is_restarted_at_its_end():
    def rows():
        for number in range(1, 7):
            yield np.full((4, 2), number), np.zeros(4)

    epochs = together(in_project(rows, "--steps-per-epoch=6"), 2, 1, 2)
    assert list(chain(*epochs)) == [[n] * 4 for n in (1, 2, 3, 4, 5, 6) * 2]


def test_a_generator_that_ends_is_an_error_with_the_remedy():
    once = iter([(np.zeros((4, 2)),)] * 3)
    task = task_of(0, 1)
    data = of_project(lambda: once, task, "--steps-per-epoch=9")
    with pytest.raises(tf.errors.OpError, match=r"has ended: have it yield batches without end"):
        read_epoch(data.reader(task), task)


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: numbers(9).batch(3).repeat(), "known, so an epoch has no length: set --steps-"),
        (lambda: numbers(9), "the data set has no batches: end it with .batch"),
        (lambda: numbers(9).batch(4).take(0), "there are no examples|the data set is empty"),
        (lambda: numbers(9).batch(3), r"batch\(3\) of the data set leaves 1 of 4 replicas idle"),
        (lambda: iter([]), "generator of trainer/data.py has ended"),
        (
            lambda: iter([(np.zeros((4, 2)),), (np.zeros((4, 2)), np.zeros(4))]),
            "of different structures",
        ),
    ],
)
def test_batches_that_cannot_be_sharded_are_refused(create, message):
    with pytest.raises((DataError, PlanError), match=message):
        of_project(create, task_of(0, 2, 2))


def test_rows_that_python_code_makes_are_compared_as_whole_batches():
    """Each task might make other ones, which rows of its own would not show."""

    def create():
        rows = numbers(40).map(lambda n: tf.numpy_function(np.negative, [n], n.dtype))
        return rows.map(lambda n: tf.ensure_shape(n, []) * 2).batch(4)

    data = of_script(create, task_of(0, 2))
    assert not data.parts.division
    assert data.comparison
