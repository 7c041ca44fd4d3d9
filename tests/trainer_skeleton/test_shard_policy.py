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
from distlaunch_trainer.python_data import generator_source, py_dataset_source
from distlaunch_trainer.shard_policy import open_batches
from distlaunch_trainer.user_dataset import dataset_source

from .conftest import task_of, write_records

Dataset = tf.data.Dataset


def opened(create, task, policy="auto", **options):
    """Return the data of a task, which creates its source as all others do."""
    keras.utils.set_random_seed(5)
    source = create()
    if isinstance(source, Dataset):
        source = dataset_source(source)
    report = SimpleNamespace(warn=str, log=str)
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


def global_steps(create, tasks, replicas, steps, first=0, *, policy="auto", counts=None, **options):
    """Return the rows of each step over all replicas."""
    rows = [[] for _ in range(first, steps)]
    totals = [set() for _ in rows]
    for rank in range(tasks):
        task = task_of(rank, tasks, replicas, counts)
        data = opened(create, task, policy, first_step=first, **options)
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


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of 25, 7 and 9 records, which are numbers from 1 to 41."""
    folder = tmp_path_factory.mktemp("files")
    names = iter(range(1, 42))
    for number, count in enumerate((25, 7, 9)):
        write_records(folder / str(number), [str(next(names)).encode() for _ in range(count)])
    return folder


def from_files(folder):
    paths = Dataset.list_files(f"{folder}/*", shuffle=False)
    return tf.data.TFRecordDataset(paths).map(tf.strings.to_number).shuffle(30)


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


# With two tasks, one has 25 + 9 rows and the other 7.
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("policy", ["auto", "file"])
@pytest.mark.parametrize("first", [0, 3])
def test_files_are_read_by_one_task_each(files, policy, replicas, first):
    create = lambda: from_files(files).batch(6)  # noqa: E731
    options = {"policy": policy, "counts": [34, 7]}
    data = opened(create, task_of(0, 2, replicas, [34, 7]), policy)
    assert (data.plan.steps, data.plan.examples) == (12, 41)
    assert [data.plan.has_empty_replicas(step) for step in (0, 11)] == [False, True]
    steps = global_steps(create, 2, replicas, 24, first, **options)
    later = Counter(row for own in steps[12 - first :] for row in own)
    assert later == dict.fromkeys(range(1, 42), 1)
    assert [len(own) for own in steps[-12:]] == [6, 6, 4, *[3] * 8, 1]


def test_endless_files_of_equal_batches_are_read_by_one_task_each(files):
    create = lambda: from_files(files).repeat().batch(8, drop_remainder=True)  # noqa: E731
    steps = global_steps(create, 2, 2, 17, steps_per_epoch=17)
    assert {len(own) for own in steps} == {8}
    seen = Counter(row for own in steps for row in own)
    assert {seen[row] for row in range(26, 33)} >= {9, 10}  # a task has these rows alone


def test_batches_of_different_sizes_are_sharded_by_rows(files):
    def create():
        rows = from_files(files)
        return rows.take(7).batch(4).concatenate(rows.skip(7).batch(8))

    data = opened(create, task_of(0, 2))
    assert data.plan.examples == 41


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
        (lambda: numbers(9).batch(3).repeat(), "has no end, so an epoch has no length: set --st"),
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
