"""Which losses are sums over the rows of a batch, by the graph that computes them."""

from __future__ import annotations

import tensorflow as tf

from distlaunch_trainer.step.row_sums import is_row_sum, sums_rows

WEIGHTS = tf.Variable(tf.ones((4, 4)))
SCALE = tf.Variable(2.0)


def square(x):
    return tf.square(tf.matmul(x, WEIGHTS))


SUMS = {
    "scaled": lambda x: 0.1 * tf.reduce_sum(square(x)) / 2,
    "by a variable": lambda x: SCALE * tf.reduce_sum(x),
    "of two": lambda x: tf.reduce_sum(x) - tf.add_n([tf.reduce_sum(x), tf.reduce_sum(square(x))]),
    "of means of rows": lambda x: tf.reduce_sum(tf.reduce_mean(x, axis=1)),
}
MEANS = {
    "mean": lambda x: tf.reduce_mean(square(x)),
    "sum over features": lambda x: tf.reduce_sum(tf.reduce_mean(x, axis=0)),
    "over the count": lambda x: tf.reduce_sum(x) / tf.cast(tf.size(x), tf.float32),
    "weights": lambda x: tf.reduce_sum(tf.square(WEIGHTS)) + tf.reduce_mean(x),
}


def test_sums_over_the_rows_are_told_from_means():
    found = {}

    def trace(x):
        losses = {"mixed": lambda x: tf.reduce_sum(x) + tf.reduce_mean(x)} | SUMS | MEANS
        for name, loss in losses.items():
            value = loss(tf.identity(x))
            found[name] = sums_rows(value), is_row_sum(value)

    spec = tf.TensorSpec((None, 4))
    tf.function(trace, autograph=False).get_concrete_function(spec)
    expected = dict.fromkeys(SUMS, (True, True)) | dict.fromkeys(MEANS, (False, False))
    assert found == expected | {"mixed": (True, False)}
