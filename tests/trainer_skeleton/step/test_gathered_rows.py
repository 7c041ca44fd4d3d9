"""The rows of all replicas, on each of them, and gradients as those of one worker."""

from __future__ import annotations

import pytest
import tensorflow as tf

from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.step.gathered_rows import check_can_gather

GATHER = """
import numpy as np
import tensorflow as tf

from distlaunch_trainer.step.gathered_rows import gather_rows
from distlaunch_trainer.step.step_context import StepRows

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
strategy = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(4)])
FIRST = {1: [0, 1, 2, 3], 2: [0, 2, 1, 3]}  # rows of replicas, by those of a task
data = np.random.default_rng(1).normal(size=(10, 3))


def loss(x, mask, number):
    pairs = tf.matmul(x, x, transpose_b=True) * tf.cast(number[:, None], x.dtype)
    return tf.reduce_sum(tf.square(pairs[mask]))


@tf.function(autograph=False)
def gradients(size, is_divided, per_task):
    def replica():
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        first = tf.constant(FIRST[per_task])[number]
        own = tf.constant(data)[:size][first::4]
        count = tf.shape(own, tf.int64)[0]
        own = tf.concat([own, tf.zeros([tf.cast(count == 0, tf.int32), 3], own.dtype)], 0)
        rows = StepRows(
            count, tf.cast(size, tf.int64), 4, True, is_divided=is_divided, per_task=per_task
        )
        with tf.GradientTape() as tape:
            tape.watch(own)
            number = tf.range(2**40, 2**40 + tf.shape(own, tf.int64)[0]) % 7
            parts = gather_rows([own, own[:, 0] > 0, None, number], rows)
            assert parts[2] is None
            value = loss(parts[0], parts[1], parts[3])
        gradient = tape.gradient(value, own)[:count] * rows.local_fraction(tf.float64)
        return parts[:2], parts[3], gradient

    return strategy.run(replica)


for size in (10, 5, 2):  # 3, 3, 2 and 2 rows; 2, 1, 1 and 1; 1, 1 and none
    for is_divided, per_task in ((True, 1), (True, 2), (False, 1)):
        parts, numbers, grads = gradients(tf.constant(size), is_divided, per_task)
        place = np.argsort(FIRST[per_task])[np.arange(size) % 4]
        order = np.arange(size) if is_divided else np.argsort(place, kind="stable")
        own_number = np.arange(size) // 4
        x = tf.constant(data[:size][order])
        number = (2**40 + own_number[order]) % 7
        with tf.GradientTape() as tape:
            tape.watch(x)
            alone = loss(x, x[:, 0] > 0, tf.constant(number))
        expected = tape.gradient(alone, x).numpy()
        local = strategy.experimental_local_results
        for of_replica in local(parts[0]):
            np.testing.assert_array_equal(of_replica, x)
        for of_replica in local(parts[1]):
            np.testing.assert_array_equal(of_replica, x[:, 0] > 0)
        for of_replica in local(numbers):
            np.testing.assert_array_equal(of_replica, number)
        for replica, gradient in enumerate(local(grads)):
            own = place[order] == replica
            np.testing.assert_allclose(gradient, expected[own], rtol=0, atol=1e-12)
"""


def test_each_replica_gets_the_rows_of_all_in_the_order_of_the_global_batch(run_code):
    """Also of uneven replicas, and of one without rows; in parts of a batch, which may be divided
    among the tasks first, and batches of each."""
    result = run_code(GATHER)
    assert result.code == 0, result.text


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (tf.constant(["a"]), r"string of shape \(1,\)"),
        (tf.constant(1.0), r"float32 of shape \(\)"),
        (tf.ragged.constant([[1], []]), "RaggedTensor"),
        (tf.TensorSpec((None,), tf.string), "string of shape"),
    ],
)
def test_what_cannot_be_exchanged_is_refused_by_name(value, kind):
    with pytest.raises(ModelError, match=rf"the rows of y_true \({kind}.*cannot be exchanged"):
        check_can_gather("y_true", value)
    check_can_gather("y_true", tf.zeros([3], tf.bfloat16))
