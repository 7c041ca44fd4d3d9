"""Arrays of every kind, as batches."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer import Arrays
from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.examples.example_source import InputOptions
from distlaunch_trainer.input.order.pipeline import Pipeline
from distlaunch_trainer.input.order.plan import BatchPlan


def batches_of(source, cluster, steps, batch=4):
    items = source.open(cluster, "")
    pipeline = Pipeline(items, BatchPlan(items.examples, batch), seed=1, shuffle_buffer=20)
    iterator = iter(pipeline.dataset(range(1), 0, steps))
    return [next(iterator)[0] for _ in range(steps)]


def test_ragged_and_sparse_arrays_are_taken_by_rows(cluster):
    rows = [[n] * (n % 3 + 1) for n in range(10)]
    dense = np.zeros((10, 5))
    dense[range(10), np.arange(10) % 5] = range(10)
    x = {"tokens": tf.ragged.constant(rows), "words": tf.sparse.from_dense(dense)}
    seen = []
    for x_part, y in batches_of(Arrays(x, np.arange(10)), cluster, 3):
        assert x_part["words"].shape[1:] == [5]
        words = tf.sparse.to_dense(x_part["words"]).numpy()
        for tokens, word, number in zip(x_part["tokens"], words, y.numpy(), strict=True):
            assert tokens.numpy().tolist() == rows[number]
            assert word.tolist() == dense[number].tolist()
            seen.append(number)
    assert sorted(seen) == list(range(10))


class Frame:
    """What pandas gives."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values


def test_frames_are_taken_as_arrays(cluster):
    (x, y) = batches_of(Arrays(Frame(np.eye(4)), Frame(np.arange(4))), cluster, 1)[0]
    assert (x.numpy()[range(4), y.numpy()] == 1).all()


def test_lists_of_numbers_are_arrays(cluster):
    lists = Arrays({"a": [[1, 2], [3, 4]], "b": (0.5, 1.5)}, [np.eye(2), [5, 6]])
    (x, y) = batches_of(lists, cluster, 1, batch=2)[0]
    rows = np.argsort(y[1])
    assert x["a"].numpy()[rows].tolist() == [[1, 2], [3, 4]]
    assert x["b"].numpy()[rows].tolist() == [0.5, 1.5]
    assert y[0].numpy()[rows].tolist() == [[1, 0], [0, 1]]
    with pytest.raises(DataError, match=r"the lists in y have different .*: give tf.ragged.const"):
        Arrays([1, 2], [[1], [2, 3]]).open(cluster, "")


def test_arrays_are_kept_in_the_memory_of_the_host(cluster):
    tf.config.set_soft_device_placement(enabled=False)
    try:
        with tf.device("/device:GPU:0"):
            with pytest.raises((RuntimeError, tf.errors.OpError)):
                tf.convert_to_tensor(np.eye(4))
            assert Arrays(np.eye(4)).open(cluster, "").examples == 4
    finally:
        tf.config.set_soft_device_placement(enabled=True)


def test_arrays_of_different_lengths_are_refused(cluster):
    with pytest.raises(DataError, match="differ in length"):
        Arrays(tf.ragged.constant([[1], [2, 3]]), np.zeros(3)).open(cluster, "")


def test_check_numerics_names_the_array_and_the_example(cluster):
    bad = tf.constant([[1.0], [np.nan], [np.inf]])
    for arrays, name in (
        (Arrays({"a": np.eye(3), "b": bad}), r"x\['b'\]"),
        (Arrays(bad, bad), "x"),
    ):
        with pytest.raises(
            DataError, match=rf"^{name} has NaN .* in 2 of 3 .* first is 1 \(from 0"
        ):
            arrays.open(cluster, "", InputOptions(check_numerics=True))
        arrays.open(cluster, "")
