from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.batch_rows import as_tensor, map_tensors
from distlaunch_trainer.input.user_data.same_rows import (
    check_equal,
    check_same_batch,
    facts_of,
    facts_of_arrays,
    suspects,
)

X = np.arange(10.0)


def rows() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, X))


def sources(*values: object) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(*values)


def check(one: tf.data.Dataset, other: tf.data.Dataset) -> None:
    check_equal([facts_of(one), facts_of(other)], ("chief", "worker:0"), "the data")


def test_data_sets_that_begin_with_other_rows_are_refused():
    for one, other in (
        (rows().shard(2, 0), rows().shard(2, 1)),
        (rows().take(5), rows().skip(5)),
        (rows().batch(3), sources((X, X[::-1])).batch(3)),
        (sources(["a", "b"]), sources(["b", "a"])),
        (tf.data.Dataset.range(3), tf.data.Dataset.range(3, 6)),
    ):
        with pytest.raises(DataError, match="of the data differ on chief and worker:0"):
            check(one, other)


def test_data_of_other_lengths_are_refused_with_the_lengths_of_the_tasks():
    with pytest.raises(DataError, match=r"of batches of the data differ, 4 on chief and 3 on"):
        check(rows().batch(3), rows().batch(4))
    arrays = [facts_of_arrays([X[:count]], count) for count in (10, 9)]
    with pytest.raises(DataError, match=r"numbers of rows of the Arrays differ, 10 on chief and 9"):
        check_equal(arrays, ("chief", "worker:0"), "the Arrays", "rows")


def test_files_may_be_in_another_folder_on_each_task():
    check(*(sources([f"{folder}/1", f"{folder}/2"]) for folder in ("/a", "/b")))


def test_ragged_rows_are_compared_by_their_number():
    texts = [tf.ragged.constant(rows) for rows in ([[1, 2], [3]], [[1], [2, 3]], [[1]])]
    same, other, fewer = (facts_of(sources(text)).sources for text in texts)
    assert same == other != fewer


@pytest.mark.parametrize(
    ("own", "other", "are_same"),
    [
        ((X, None), (X + 1e-5, None), True),  # predicted by each task
        ((np.array(["a", "b"]), X * np.nan), (np.array(["a", "b"]), X * np.nan), True),
        ((X, None), (X[::-1], None), False),
        ((X, None), (X[:9], None), False),
        ((X, X), (X, X + 1), False),
        ((np.array(["a", "b"]),), (np.array(["b", "a"]),), False),
    ],
)
def test_batches_that_differ_by_more_than_rounding_are_refused(own, other, are_same):
    """The tasks give their batches one after the other."""
    sent = []

    def exchange(kind, value, waits_for):
        sent.append(value)
        return [*sent]

    rendezvous = SimpleNamespace(peers=("chief",), exchange=exchange)
    check_same_batch(map_tensors(as_tensor, own), rendezvous, "the batch")
    rendezvous.peers = ("chief", "worker:0")
    refused = nullcontext() if are_same else pytest.raises(DataError, match="differs on chief")
    with refused:
        check_same_batch(map_tensors(as_tensor, other), rendezvous, "the batch")


def test_python_and_random_operations_are_known():
    def facts(function):
        found = facts_of(rows().map(function).prefetch(1))
        return found.is_python, found.is_random

    dtype = tf.float64
    assert facts(lambda x, y: (x + 1, y)) == (False, False)
    assert facts(lambda x, y: (x + tf.random.normal([], dtype=dtype), y)) == (False, True)
    seed = [1, 2]
    assert facts(lambda x, y: (x + tf.random.stateless_normal([], seed, dtype=dtype), y)) == (
        False,
        False,
    )
    assert facts(lambda x, y: (tf.numpy_function(np.copy, [x], dtype), y)) == (True, False)


def test_a_function_that_reads_a_lookup_table_is_not_random():
    """Its call is an operation StatefulPartitionedCall."""
    numbers = tf.constant([1, 2], tf.int64)
    initializer = tf.lookup.KeyValueTensorInitializer(numbers, numbers)
    table = tf.lookup.StaticHashTable(initializer, 0)
    mapped = tf.data.Dataset.range(3).map(tf.function(table.lookup))
    assert not facts_of(mapped).is_random


def test_lines_that_give_each_task_other_rows_are_named(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(
        "names = sorted(set(labels))\n"
        "number = {name: n for n, name in enumerate(set(labels))}\n"
        "files = sorted(os.listdir('data'))\n"
        "files = glob.glob('data/*')  # set()\n"
        "order = np.random.default_rng().permutation(10)\n"
        "order = np.random.default_rng(0).permutation(10)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    assert suspects() == (
        "; see train.py, line 5 (no seed), train.py, line 2 (the order of a set), "
        "train.py, line 4 (files in any order)"
    )
