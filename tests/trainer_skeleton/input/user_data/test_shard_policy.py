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
from distlaunch_trainer.input.user_data.python_data import generator_source, py_dataset_source
from distlaunch_trainer.input.user_data.shard_policy import open_batches
from distlaunch_trainer.input.user_data.user_dataset import dataset_source

from ...conftest import task_of  # noqa: TID252

Dataset = tf.data.Dataset


def opened(create, task, policy="data", report=None, **options):
    """Return the data of a task, which creates its source as all others do."""
    keras.utils.set_random_seed(5)
    source = create()
    if isinstance(source, Dataset):
        source = dataset_source(source)
    report = report or SimpleNamespace(warn=str, log=str)
    return open_batches(source, policy, task, report, **options)


def steps_of(data, task, steps, first=0):
    """Return the rows of each step and replica, checked for the counts that come with them."""
    iterator = iter(data.pipeline.dataset(task.replica_ids, first, steps))
    rows = []
    for _ in range(first, steps):
        rows.append([])
        for _ in task.replica_ids:
            batch, own, total = next(iterator)
            parts = [part for part in tf.nest.flatten(batch) if part is not None]
            assert {int(part.shape[0]) for part in parts} == {max(1, int(own))}
            rows[-1].append((_first_column(parts[0])[: int(own)], int(total)))
    return rows


def _first_column(part):
    if isinstance(part, tf.RaggedTensor):
        return [int(row[0]) for row in part]
    if isinstance(part, tf.SparseTensor):
        part = tf.sparse.to_dense(part)
    return np.asarray(part).reshape(len(part), -1)[:, 0].astype(int).tolist()


def global_steps(create, tasks, replicas, steps, first=0, **options):
    """Return the rows of each step over all replicas."""
    rows = [[] for _ in range(first, steps)]
    totals = [set() for _ in rows]
    for rank in range(tasks):
        task = task_of(rank, tasks, replicas)
        data = opened(create, task, first_step=first, **options)
        for number, of_replicas in enumerate(steps_of(data, task, steps, first)):
            for own, total in of_replicas:
                rows[number] += own
                totals[number].add(total)
    for own, total in zip(rows, totals, strict=True):
        assert total == {len(own)}
    return [sorted(own) for own in rows]


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
def test_rows_are_seen_once_in_each_pass_and_in_the_steps_of_one_replica(create, tasks, replicas):
    plan = opened(create, task_of(0, 1)).plan
    together = global_steps(create, tasks, replicas, 3 * plan.steps)
    assert together == global_steps(create, 1, 1, 3 * plan.steps)
    for number in range(3):
        rows = Counter(r for own in together[number * plan.steps :][: plan.steps] for r in own)
        assert set(rows.values()) == {1}
        assert sorted(rows) == list(range(1, len(rows) + 1))


MAPPED = lambda: numbers(101).batch(10).map(lambda n: n[n > 5])  # noqa: E731


@pytest.mark.parametrize(
    ("create", "replicas", "steps"),
    [
        (lambda: numbers(101).batch(10).prefetch(1), 2, {10}),
        (lambda: numbers(102).batch(10).cache(), 2, set()),
        (lambda: numbers(101).filter(lambda n: n > 0).padded_batch(10), 2, {10}),
        (lambda: numbers(101).batch(10).take(3), 2, set(range(11))),
        (lambda: numbers(101).batch(10).repeat(2), 2, set(range(11))),
        (MAPPED, 2, set(range(11))),
        (lambda: numbers(101).batch(10, drop_remainder=True), 2, set()),
    ],
)
def test_steps_that_may_leave_replicas_idle(create, replicas, steps):
    """By the type of the data set: the last batch alone may be small, or any one."""
    plan = opened(create, task_of(0, 1, replicas)).plan
    assert {step for step in range(11) if plan.has_empty_replicas(step)} == steps
    if plan.steps == 11:
        assert {step - 11 for step in range(11, 22) if plan.has_empty_replicas(step)} == steps


def test_rows_that_were_counted_are_made_by_one_task_each():
    def create():
        return numbers(53).filter(lambda n: n > 2).map(lambda n: n * 1).batch(10)

    lines = []
    opened(create, task_of(0, 2), report=SimpleNamespace(warn=str, log=lines.append))
    assert lines[-1] == "input: each task makes its own rows alone (MapDataset, BatchDatasetV2)"
    assert global_steps(create, 2, 1, 12) == global_steps(create, 1, 1, 12)


@pytest.mark.parametrize("rows", [53, 49])
def test_what_drop_remainder_leaves_out_of_unknown_rows_is_no_batch(rows):
    create = lambda: numbers(rows).filter(lambda n: n > 0).batch(8, drop_remainder=True)  # noqa: E731
    assert global_steps(create, 2, 1, 18) == global_steps(create, 1, 1, 18)


def own_rows(rank, rows=(25, 7)):
    """A data set that training() gives one task: its rows begin at 100 times its number."""
    return numbers(rows[rank]).map(lambda n: n + 100 * (rank + 1)).batch(6)


def own_steps(task, steps, first=0, **options):
    """Return the rows of a task in each step, without a policy, and the data."""
    data = opened(lambda: own_rows(task.role.rank), task, "off", first_step=first, **options)
    iterator = iter(data.pipeline.dataset(task.replica_ids, first, steps))
    rows = []
    for _ in range(first, steps):
        parts = [next(iterator) for _ in task.replica_ids]
        rows.append(sorted(chain(*(part.numpy()[: int(own)] for part, own in parts))))
    return rows, data


@pytest.mark.parametrize("replicas", [1, 2])
def test_without_a_policy_a_step_has_a_batch_of_every_task(replicas):
    """The tasks have 5 batches and 2."""
    of_tasks = [own_steps(task_of(rank, 2, replicas, [5, 2]), 10) for rank in (0, 1)]
    for (rows, data), count, batches in zip(of_tasks, (25, 7), (5, 2), strict=True):
        assert (data.plan.steps, data.plan.global_batch) == (5, 12)
        assert [data.plan.has_empty_replicas(step) for step in range(10)] == 2 * [
            *[False],
            *[True] * 4,
        ]
        first = rows[0][0] // 100 * 100
        for one_pass in (rows[:5], rows[5:]):
            assert sorted(chain(*one_pass)) == list(range(first + 1, first + count + 1))
            assert not any(one_pass[batches:])
    for rank, (rows, _) in enumerate(of_tasks):
        assert own_steps(task_of(rank, 2, replicas, [5, 2]), 10, first=3)[0] == rows[3:]


def test_without_a_policy_idle_tasks_and_equal_data_are_warned_of():
    warnings = []
    report = SimpleNamespace(warn=warnings.append, log=str)
    opened(lambda: own_rows(0), task_of(0, 2, counts=[5, 2]), "off", report)
    assert "worker:1 is idle in 3 of the 5 steps of an epoch; --shard-policy data" in warnings[0]
    assert "all 2 tasks read the same data, so an epoch sees each row 2 times" in warnings[1]


def test_without_a_policy_batches_are_counted_if_their_number_is_unknown():
    create = lambda: own_rows(0).filter(lambda _: True)  # noqa: E731
    lines = []
    report = SimpleNamespace(warn=str, log=lines.append)
    assert opened(create, task_of(0, 2), "off", report).plan.steps == 5
    assert lines == [
        "reading the data set of trainer/data.py to count its batches",
        "the data set of trainer/data.py: each task has its own batches, as --shard-policy is off "
        "(worker:0 5, worker:1 5); a step trains on one of every task",
    ]


def test_without_a_policy_data_may_have_no_end():
    create = lambda: own_rows(0).unbatch().repeat().batch(6)  # noqa: E731
    data = opened(create, task_of(0, 2, counts=[-1, -1]), "off", steps_per_epoch=7)
    assert (data.plan.steps, data.plan.has_empty_replicas(3)) == (None, False)
    message = r"no batches, or no end, on some tasks only \(worker:0 no end, worker:1 4\)"
    with pytest.raises(DataError, match=message):
        opened(create, task_of(0, 2, counts=[-1, 4]), "off", steps_per_epoch=7)


def test_a_pass_is_counted_only_if_nothing_gives_its_length():
    read = []

    def create(options=""):
        note = lambda n: tf.py_function(lambda n: read.append(int(n)) or n, [n], tf.int64)  # noqa: E731
        rows = numbers(400).map(note)
        return (rows.filter(lambda n: n > 0) if "filter" in options else rows).batch(8)

    assert opened(create, task_of(0, 1)).plan.steps == 50
    assert max(read) < 100  # the first batch, for its size, and what is prefetched
    read.clear()
    assert opened(lambda: create("filter"), task_of(0, 1), steps_per_epoch=3).plan.steps is None
    assert max(read) < 100
    assert opened(lambda: create("filter"), task_of(0, 1)).plan.steps == 50
    assert max(read) == 400


@pytest.mark.parametrize("kind", [shuffled, small_batches])
@pytest.mark.parametrize("first", [1, 2, 7])
def test_resumed_passes_are_whole(kind, first):
    create = lambda: kind().filter(lambda *_: True)  # noqa: E731 - of unknown length
    steps = opened(create, task_of(0, 1)).plan.steps
    resumed = global_steps(create, 2, 1, 4 * steps, first, steps_per_epoch=steps)
    for start in range(steps - first % steps, len(resumed), steps):
        rows = Counter(row for own in resumed[start : start + steps] for row in own)
        assert set(rows.values()) == {1}


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
        return [x, {"half": x / 2}], None

    def on_epoch_begin(self):
        self.calls.append("begin")

    def on_epoch_end(self):
        self.calls.append("end")
        np.random.default_rng(len(self.calls)).shuffle(self.rows)


@pytest.mark.parametrize("options", [{}, {"workers": 3, "max_queue_size": 2}])
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_py_dataset_is_seen_once_in_a_pass_and_resumes_exactly(options, replicas):
    create = lambda: py_dataset_source(Squares(**options), 1, shuffles=True)  # noqa: E731
    steps = global_steps(create, 1, replicas, 15)
    assert [sorted(chain(*steps[n : n + 5])) for n in (0, 5, 10)] == [list(range(1, 24))] * 3
    assert steps[:5] != steps[5:10]
    assert global_steps(create, 1, replicas, 15, first=7) == steps[7:]


def test_hooks_of_a_py_dataset_are_called_around_each_pass():
    data = Squares()
    opened_data = opened(lambda: py_dataset_source(data, 1, shuffles=False), task_of(0, 1))
    assert opened_data.plan.steps == 5
    steps_of(opened_data, task_of(0, 1), 11)
    assert data.calls[:5] == ["begin", "end", "begin", "end", "begin"]


def test_a_py_dataset_is_read_by_processes():
    create = lambda: py_dataset_source(  # noqa: E731
        Squares(workers=2, use_multiprocessing=True), 1, shuffles=False
    )
    assert global_steps(create, 1, 1, 2) == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]


def test_a_generator_goes_on_over_epochs_and_is_restarted_at_its_end():
    def rows():
        for number in range(1, 7):
            yield np.full((4, 2), number), [number] * 4 and np.zeros(4)

    create = lambda: generator_source(rows(), rows)  # noqa: E731
    steps = global_steps(create, 2, 1, 13, steps_per_epoch=6)
    assert steps == [[n] * 4 for n in (1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1)]


def test_a_generator_that_ends_is_an_error_with_the_remedy():
    once = iter([np.zeros((4, 2))] * 3)
    data = opened(lambda: generator_source(once, lambda: once), task_of(0, 1), steps_per_epoch=9)
    with pytest.raises(tf.errors.OpError, match=r"has ended: have it yield batches without end"):
        steps_of(data, task_of(0, 1), 9)


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: numbers(9).batch(3).repeat(), "known, so an epoch has no length: set --steps-"),
        (lambda: numbers(9), "the data set has no batches: end it with .batch"),
        (lambda: numbers(9).batch(3).take(0), "there are no examples|the data set is empty"),
        (lambda: numbers(9).batch(3), r"batch\(3\) of the data set leaves 1 of 4 replicas idle"),
        (lambda: generator_source(iter([]), lambda: iter([])), "the generator has no batches"),
        (
            lambda: generator_source(iter([np.zeros((4, 2)), (np.zeros(3), 1)]), None),
            "batches of different structures",
        ),
    ],
)
def test_batches_that_cannot_be_sharded_are_refused(create, message):
    with pytest.raises((DataError, PlanError), match=message):
        opened(create, task_of(0, 2, 2))
