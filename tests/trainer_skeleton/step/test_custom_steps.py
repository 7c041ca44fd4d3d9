"""Which models are refused, and what replicas with different rows differentiate."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.step import custom_steps
from distlaunch_trainer.step.step_context import StepRows

layers = keras.layers

TRAIN_UNEVENLY = """
import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.step import step_context
from distlaunch_trainer.step.custom_steps import CustomSteps
from distlaunch_trainer.step.step_context import StepRows
from distlaunch_trainer.step.normalization import BatchNormalizations

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
keras.config.set_floatx("float64")
x = np.random.default_rng(1).normal(size=(4, 3))
y = np.square(x).sum(axis=1, keepdims=True)


class Model(keras.Sequential):
    def train_step(self, data):
        return super().train_step(data)


def create_model():
    keras.utils.set_random_seed(1)
    norm = keras.layers.BatchNormalization(synchronized=True)
    model = Model(
        [
            keras.Input((3,)),
            keras.layers.Dense(4, "tanh"),
            norm,
            keras.layers.Dense(4, "tanh"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1, clipnorm=0.5), "mse")
    return model


alone = create_model()
for _ in range(3):
    alone.train_on_batch(x, y)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    model = create_model()
    model.optimizer.build(model.trainable_variables)
    BatchNormalizations(model, 2)
    steps = CustomSteps(model, 2)


@tf.function(autograph=False)
def train(first):
    def replica():
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        start, stop = tf.unstack(tf.where(number == 0, [0, first], [first, 4]))
        rows = StepRows(tf.cast(stop - start, tf.int64), tf.constant(4, tf.int64), 2, True)
        stop = tf.maximum(stop, start + 1)  # a placeholder, if there is no row
        start = tf.minimum(start, 3)
        with step_context.extended(rows=rows):
            steps.train((tf.constant(x)[start:stop], tf.constant(y)[start:stop]), rows)

    strategy.run(replica)


for first in (3, 2, 4):
    train(tf.constant(first))
for own, expected in zip(model.trainable_weights, alone.trainable_weights, strict=True):
    np.testing.assert_allclose(own.numpy(), expected.numpy(), rtol=0, atol=1e-12)
"""


def test_replicas_with_different_rows_differentiate_synchronized_normalization(run_code):
    """Three rows and one, two and two, and four and none."""
    result = run_code(TRAIN_UNEVENLY)
    assert result.code == 0, result.text


def test_stateful_layers_are_refused_by_name_on_several_replicas():
    x = layers.Input(batch_shape=(4, 5, 3))
    inner = layers.LSTM(2, stateful=True, return_sequences=True, name="memory")
    outer = layers.Bidirectional(layers.GRU(2, stateful=True, name="both"))
    model = keras.Model(x, outer(inner(x)))
    with pytest.raises(
        ModelError, match=r"the layers memory, .*both.* are stateful, and 2 replicas"
    ):
        custom_steps.check_can_train(model, 2)
    custom_steps.check_can_train(model, 1)
    custom_steps.check_can_train(keras.Model(x, layers.LSTM(2)(x)), 2)


def test_a_loop_of_the_model_is_refused():
    class Own(keras.Sequential):
        def make_test_function(self, force=False):
            raise RuntimeError

    with pytest.raises(ModelError, match=r"Own.make_test_function\(\) would not be called"):
        custom_steps.check_can_train(Own(), 1)


@pytest.mark.parametrize(
    ("returned", "problem"), [(None, "NoneType"), (tf.zeros([3]), r"shape \(3,\)")]
)
def test_a_step_that_returns_no_loss_is_refused(returned, problem):
    model = keras.Sequential([layers.Input((2,)), layers.Dense(1)])
    steps = custom_steps.CustomSteps(model, 1, lambda *_: returned)
    rows = StepRows(tf.constant(3, tf.int64), tf.constant(3, tf.int64), 1, may_be_empty=False)
    with pytest.raises(ModelError, match=rf"train_step\(\) in .* returned {problem}: return the "):
        steps.call_function((tf.zeros([3, 2]),), rows)
