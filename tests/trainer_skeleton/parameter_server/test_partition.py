"""Which part of a variable is on which parameter server."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer.parameter_server.partition import (
    MIN_PART_BYTES,
    is_elementwise,
    part_bounds,
    split,
    split_gradient,
)

ROWS = MIN_PART_BYTES // 4  # of one float32 each: the smallest part


@pytest.mark.parametrize(
    ("shape", "servers", "parts"),
    [
        ((), 3, 1),
        ((2 * ROWS - 1,), 3, 1),
        ((2 * ROWS,), 3, 2),
        ((9 * ROWS,), 3, 3),
        ((2, 4 * ROWS), 3, 2),  # no more than rows
        ((1, 4 * ROWS), 3, 1),
        ((9 * ROWS,), 1, 1),
    ],
)
def test_large_variables_are_cut_into_as_many_parts_as_there_are_servers(shape, servers, parts):
    bounds = part_bounds(shape, 4, servers)
    assert len(bounds) == parts
    rows = [number for start, stop in bounds for number in range(start, stop)]
    assert rows == list(range(shape[0] if shape else 1))
    sizes = [stop - start for start, stop in bounds]
    assert max(sizes) - min(sizes) <= 1


def test_gradients_are_cut_as_their_variables_are():
    bounds = [(0, 4), (4, 7), (7, 10)]
    value = np.random.default_rng(0).normal(size=(10, 2)).astype(np.float32)
    for part, expected in zip(
        split_gradient(tf.constant(value), bounds), split(value, bounds), strict=True
    ):
        np.testing.assert_array_equal(part, expected)
    rows = tf.IndexedSlices(tf.constant(value[:5]), tf.constant([9, 4, 4, 0, 6]), [10, 2])
    parts = [tf.convert_to_tensor(part) for part in split_gradient(rows, bounds)]
    np.testing.assert_array_equal(tf.concat(parts, 0), tf.convert_to_tensor(rows))
    assert split_gradient(None, bounds) == [None] * 3


def test_only_optimizers_that_treat_each_number_alone_take_parts():
    optimizers = keras.optimizers
    assert is_elementwise(optimizers.Adam(weight_decay=0.1, global_clipnorm=1.0))
    for optimizer in (optimizers.Adam(clipnorm=1.0), optimizers.Adafactor(), optimizers.Lamb()):
        assert not is_elementwise(optimizer)
