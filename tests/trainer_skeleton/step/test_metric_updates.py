"""Metrics of three replicas are those of one worker, whatever their states are."""

from __future__ import annotations

TRAIN = """
import functools
import sys
import warnings
from types import SimpleNamespace

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.fit.interception import intercepted
from distlaunch_trainer.fit.script_models import ScriptModels

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
keras.config.set_floatx("float64")
layers, ops = keras.layers, keras.ops
x = np.random.default_rng(1).normal(size=(25, 4, 3))
y = (x.sum(2, keepdims=True) > 0) * 1.0
weights = np.random.default_rng(3).random((25, 4))


class Largest(keras.metrics.Metric):
    def __init__(self, name="largest"):
        super().__init__(name=name)
        self.value = self.add_variable((), "zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(tf.maximum(self.value, tf.reduce_max(y_pred)))

    def reset_state(self):
        self.value.assign(-1e9)

    def result(self):
        return self.value + 0


class MeanOfBatches(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="mean_of_batches")
        self.mean = keras.metrics.Mean()

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.mean.update_state(root_mean_square(y_true, y_pred))

    def result(self):
        return self.mean.result()

    def reset_state(self):
        self.mean.reset_state()


class MeanPerStep(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="mean_per_step")
        self.count = self.add_variable((), "zeros", dtype="int32")
        self.total = self.add_variable((), "zeros")

    def update_state(self, value):
        self.count.assign_add(1)
        self.total.assign_add(value)

    def result(self):
        return self.total / tf.cast(self.count, self.total.dtype)


class Counts(layers.Layer):
    def __init__(self):
        super().__init__()
        self.mean, self.own = keras.metrics.Mean(name="mean"), MeanPerStep()
        self.weighted = keras.metrics.Mean(name="weighted")
        self.weight = self.add_weight(shape=(), initializer="ones", trainable=False)
        self.sum, self.largest = keras.metrics.Sum(name="sum"), Largest("largest_in_layer")

    def call(self, x):
        self.mean.update_state(ops.mean(x**2))
        self.own.update_state(ops.mean(x))
        self.weighted.update_state(ops.mean(x), sample_weight=2 * self.weight)
        self.sum.update_state(x)
        self.largest.update_state(x, ops.reshape(x, (-1, 5)))
        return x


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = [layers.Dense(5, "tanh"), Counts(), layers.Dense(1, "sigmoid")]
        self.size = keras.metrics.Mean(name="size")

    def call(self, x):
        return functools.reduce(lambda value, layer: layer(value), self.inner, x)

    def compute_loss(self, x, y, y_pred, sample_weight, training=True):
        self.size.update_state(ops.mean(ops.abs(y_pred)))
        return super().compute_loss(x, y, y_pred, sample_weight, training)


def root_mean_square(y_true, y_pred):
    return ops.sqrt(ops.mean(ops.square(y_true - y_pred)))


def train(**options):
    keras.utils.set_random_seed(1)
    model = Model()
    own = [root_mean_square, Largest(), MeanOfBatches()]
    known = [keras.metrics.AUC(name="auc"), keras.metrics.Recall(name="recall"), "mae"]
    metrics = {"metrics": [*own, *known], "weighted_metrics": ["mse"]}
    model.compile(keras.optimizers.Adam(0.01), "mse", **metrics, **options)
    logs = []
    for rows in (slice(12), slice(12, 23), slice(23, 25)):  # the last has fewer than replicas
        logs.append(model.train_on_batch(x[rows], y[rows], weights[rows], return_dict=True))
    logs.append(model.test_on_batch(x, y, return_dict=True))
    return [(*pair, number) for number, part in enumerate(logs) for pair in part.items()]


CASES = {}, {"jit_compile": True}, {"run_eagerly": True}
expected = [train(**options) for options in CASES]
strategy = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(3)])
tf.distribute.experimental_set_strategy(strategy)
models = ScriptModels(
    Cluster(Role(), strategy), SimpleNamespace(warn=print), sync_batch_norm=False
)
for name in ("train_on_batch", "test_on_batch"):
    setattr(keras.Model, name, intercepted(getattr(keras.Model, name), models.run_on_batch))
with warnings.catch_warnings(action="error"):
    for options, alone in zip(CASES, expected, strict=True):
        for one, other in zip(alone, train(**options), strict=True):
            assert one[0] == other[0]
            np.testing.assert_allclose(other[1], one[1], atol=1e-9, err_msg=f"{options} {one}")
"""

WARN = """
import keras
import tensorflow as tf

from distlaunch_trainer.step import step_context
from distlaunch_trainer.step.metric_updates import watch
from distlaunch_trainer.step.step_context import StepRows

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


class Largest(keras.metrics.Metric):
    def __init__(self):
        super().__init__()
        self.value = self.add_variable((), "zeros")

    def update_state(self, value):
        if value.dtype == tf.string:
            value = tf.strings.length(value)
        self.value.assign(tf.maximum(self.value, tf.cast(tf.reduce_max(value), tf.float32)))


@tf.function(autograph=False)
def update(metric, per_step, size):
    def replica():
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        values = [tf.cast(number + 3, tf.float32), tf.fill([size], "abc")]
        rows = StepRows(tf.cast(size, tf.int64), tf.cast(2 * size, tf.int64), 2, False)
        with step_context.extended(rows=rows):
            metric.update_state(values[0] if per_step else values[1])

    strategy.run(replica)


with strategy.scope():
    metrics = [Largest(), Largest()]
watch(metrics)
for metric in metrics:
    update(metric, metric is metrics[0], tf.constant(2))
    assert metric.value.numpy() == 3  # that of the first replica
"""


def test_metrics_of_replicas_are_those_of_one_worker(run_code):
    """In a layer, in the model's own loss and compiled; sums, means, maxima and others."""
    result = run_code(TRAIN)
    assert result.code == 0, result.text


def test_metrics_that_cannot_be_computed_from_all_rows_are_named(run_code):
    result = run_code(WARN)
    assert result.code == 0, result.text
    assert "program.py, line 19) is no sum over the rows" in result.text
    assert "is given one number per step: give it the rows" in result.text
    assert "cannot be exchanged between replicas: give dense tensors" in result.text
