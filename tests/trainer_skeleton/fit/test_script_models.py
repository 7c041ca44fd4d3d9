"""Calls for a single batch compute what plain Keras computes, on a task with three replicas."""

from __future__ import annotations

TRAIN = """
from types import SimpleNamespace

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.fit.interception import intercepted
from distlaunch_trainer.fit.session import predict_alone
from distlaunch_trainer.fit.script_models import ScriptModels

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
keras.config.set_floatx("float64")
layers = keras.layers
x = np.random.default_rng(1).normal(size=(25, 3))
y = (x.sum(1, keepdims=True) > 0) * 1.0
weights = np.random.default_rng(2).random(25)


class Added(layers.Layer):
    def call(self, x):
        self.add_loss(0.01 * keras.ops.sum(x**2))
        return x


def train(reduction, norm, **options):
    keras.utils.set_random_seed(1)
    middle = [Added()] if reduction == "mean" else []
    hidden = [layers.Dense(4, "tanh"), *middle, *[layers.BatchNormalization() for _ in range(norm)]]
    model = keras.Sequential([layers.Input((3,)), *hidden, layers.Dense(1, "sigmoid")])
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    metrics = ["mae", keras.metrics.TruePositives()]
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=metrics, weighted_metrics=["mse"])
    numbers = []
    for rows in (slice(12), slice(12, 23), slice(23, 25)):  # the last has fewer than replicas
        given = {name: value[rows] for name, value in options.items() if name == "sample_weight"}
        given |= {name: value for name, value in options.items() if name not in given}
        numbers += model.train_on_batch(x[rows], y[rows], **given)
        numbers += np.ravel(model.predict_on_batch(x)).tolist()
    numbers += model.test_on_batch(x, y)
    return [*numbers, *(number for value in model.get_weights() for number in np.ravel(value))]


class Weighted(keras.losses.Loss):  # a mean over the rows, or over their weights
    def __call__(self, y_true, y_pred, sample_weight=None):
        errors = keras.ops.mean(keras.ops.square(y_true - y_pred), -1)
        weights = 1.0 if sample_weight is None else keras.ops.cast(sample_weight, errors.dtype)
        return keras.ops.sum(weights * errors) / keras.ops.sum(weights + 0 * errors)


class Positions(layers.Layer):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = layers.Embedding(9, 4), layers.Embedding(70, 4)

    def call(self, x):
        return self.tokens(x) + self.positions(keras.ops.arange(keras.ops.shape(x)[1]))


def train_on_more():  # weights come later, and the positions in a text depend on its length
    keras.utils.set_random_seed(1)
    middle = [Positions(), layers.GlobalAveragePooling1D()]
    model = keras.Sequential([layers.Input((None,), dtype="int64"), *middle, layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.05), Weighted())
    numbers = []
    for size, given in (11, []), (7, []), (2, [weights]), (11, [weights]):
        texts = np.random.default_rng(size).integers(0, 9, (size, size))
        numbers.append(model.train_on_batch(texts, y[:size], *[value[:size] for value in given]))
    return [*numbers, *(number for value in model.get_weights() for number in np.ravel(value))]


CASES = (
    ("mean", 0, {}),
    ("sum", 1, {"sample_weight": weights}),
    ("none", 0, {"class_weight": {0: 0.5, 1: 2.0}}),
)
expected = [train(reduction, norm, **options) for reduction, norm, options in CASES]
expected_of_more = train_on_more()
strategy = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(3)])
tf.distribute.experimental_set_strategy(strategy)
models = ScriptModels(
    Cluster(Role(), strategy), SimpleNamespace(warn=print), sync_batch_norm=False
)
for name, intercept in (
    ("train_on_batch", models.run_on_batch),
    ("test_on_batch", models.run_on_batch),
    ("predict_on_batch", predict_alone),
):
    setattr(keras.Model, name, intercepted(getattr(keras.Model, name), intercept))
for (reduction, norm, options), numbers in zip(CASES, expected, strict=True):
    np.testing.assert_allclose(train(reduction, norm, **options), numbers, atol=1e-10)
np.testing.assert_allclose(train_on_more(), expected_of_more, atol=1e-10)
"""


def test_single_batches_are_divided_among_the_replicas(run_code):
    result = run_code(TRAIN)
    assert result.code == 0, result.text
    assert "normalize by the rows of one replica" not in result.text
