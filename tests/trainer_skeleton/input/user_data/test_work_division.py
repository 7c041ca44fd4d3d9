"""Each row of a user's data set is made by one task, whatever comes before ``batch``."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distlaunch_trainer.input.user_data.work_division import divide_work
from distlaunch_trainer.keras_compat import keras_random

Dataset = tf.data.Dataset
ROWS = 23


def interleaved(rows: Dataset) -> Dataset:
    return rows.interleave(lambda n: Dataset.from_tensors(n).repeat(2), cycle_length=3)


OPERATIONS = {
    "map": lambda rows: rows.map(lambda n: n * 3 + 1),
    "several at once": lambda rows: rows.map(lambda n: n * 2, num_parallel_calls=2),
    "with a condition": lambda rows: rows.map(lambda n: tf.cond(n > 9, lambda: n - 9, lambda: n)),
    "prefetch": lambda rows: rows.prefetch(2),
    "cache": lambda rows: rows.cache(),
    "shuffle": lambda rows: rows.shuffle(9, seed=3),
    "shuffle by the global seed": lambda rows: rows.shuffle(40),
    "take": lambda rows: rows.take(17),
    "skip": lambda rows: rows.skip(2),
    "repeat": lambda rows: rows.repeat(2),
    "filter": lambda rows: rows.filter(lambda n: n % 5 > 0),
    "interleave": interleaved,
    "python": lambda rows: rows.map(lambda n: tf.numpy_function(np.negative, [n], n.dtype)),
}


def made(chain, size, *, drops):
    """Return a data set of batches, whose operations draw the same seeds each time."""
    keras.utils.set_random_seed(5)
    rows = Dataset.range(ROWS)
    for name in chain:
        rows = OPERATIONS[name](rows)
        rows = rows.map(lambda n: tf.ensure_shape(n, [])) if name == "python" else rows
    return rows.batch(size, drop_remainder=drops).prefetch(1)


@settings(max_examples=settings.default.max_examples // 2)  # each reads eight data sets
@given(
    chain=st.lists(st.sampled_from(list(OPERATIONS)), max_size=5),
    tasks=st.integers(2, 4),
    per_task=st.integers(1, 4),
    drops=st.booleans(),
)
@example(chain=["shuffle", "repeat", "map", "map", "repeat"], tasks=3, per_task=3, drops=True)
def test_the_rows_of_all_tasks_are_those_of_each_batch(chain, tasks, per_task, drops):
    """In two passes, as a data set that shuffles has another order in the second one."""
    size = per_task * tasks
    expected = [batch.numpy().tolist() for batch in made(chain, size, drops=drops).repeat(2)]
    for task in range(tasks):
        divided = divide_work(made(chain, size, drops=drops), task, tasks)
        if divided is None:
            return
        found = list(divided.parts.repeat(2))
        assert [int(total) for _, _, total in found] == list(map(len, expected))
        own = [data.numpy().tolist()[: int(rows)] for data, rows, _ in found]
        assert own == [batch[task::tasks] for batch in expected]
        assert all(len(data) for data, _, _ in found)


@pytest.mark.parametrize(
    ("chain", "what"),
    [
        (["map"], "MapDataset, BatchDatasetV2"),
        (
            ["shuffle", "several at once", "prefetch", "map"],
            "ParallelMapDatasetV2, MapDataset, BatchDatasetV2",
        ),
        (["map", "shuffle", "map"], "MapDataset, BatchDatasetV2"),  # whose input is all rows
        (["map", "cache"], "BatchDatasetV2"),  # other readers of the data set share what is kept
        (["shuffle"], "BatchDatasetV2"),
        (["map", "filter"], None),  # the number of rows is not known
    ],
)
def test_what_is_divided(chain, what):
    divided = divide_work(made(chain, 6, drops=False), 0, 3)
    line = what and f"input: each task makes its own rows alone ({what})"
    assert (divided and divided.log_line) == line
    assert divide_work(made(chain, 7, drops=False), 0, 3) is None  # three tasks do not divide 7


def test_tasks_draw_random_numbers_of_their_own(monkeypatch):
    """Unless all rows are to have the numbers of one worker: then each task draws for all rows."""

    def noisy():
        keras.utils.set_random_seed(5)
        return Dataset.range(24).map(lambda n: (n, tf.random.uniform([]))).batch(6)

    def drawn(task):
        divided = divide_work(noisy(), task, 2)
        return np.concatenate([data[1] for data, _, _ in divided.parts])

    assert not np.isin(drawn(1), drawn(0)).any()
    monkeypatch.setattr(keras_random._draws, "are_same", True)
    expected = np.concatenate([batch[1] for batch in noisy()])
    for task in range(2):
        np.testing.assert_array_equal(drawn(task), expected[task::2])
