"""Models are built without being trained, and steps that depend on the replicas are named."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.model.model_build import build_model

layers = keras.layers
SPEC = tuple(tf.TensorSpec((None, size), "float32") for size in (4, 3))


class Own(keras.Model):
    """A model whose step differentiates any function of the squared errors."""

    def __init__(self, loss, logs=lambda loss: {}, metric=None):
        super().__init__()
        self.hidden = keras.Sequential([layers.Dense(8), layers.BatchNormalization()])
        self.out = layers.Dense(3)
        self.optimizers = [keras.optimizers.Adam(), keras.optimizers.SGD()]
        self.loss_function = loss
        self.logs = logs
        self.metric = metric

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.loss_function(tf.square(self.out(self.hidden(x, training=True)) - y))
        weights = self.hidden.trainable_weights + self.out.trainable_weights
        gradients = tape.gradient(loss, weights)
        for optimizer in self.optimizers:
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
        if self.metric is not None:
            self.metric.update_state(tf.reduce_mean(loss))
        return self.logs(loss)


def notes_of(*arguments):
    model = Own(*arguments)
    model.compile()
    return model, build_model(model, SPEC)


def test_all_variables_of_a_model_that_was_not_called_are_created_and_none_is_updated():
    model, notes = notes_of(tf.reduce_mean)
    assert notes == []
    assert len(model.trainable_variables) == 6
    assert [len(optimizer.variables) for optimizer in model.optimizers] == [2 + 2 * 6, 2]
    assert all(int(optimizer.iterations) == 0 for optimizer in model.optimizers)
    mean = model.hidden.layers[1].moving_mean
    np.testing.assert_array_equal(mean, np.zeros(8))
    assert "apply" not in vars(model.optimizers[0])
    weight = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        loss = weight**2
    assert float(tape.gradient(loss, weight)) == 4  # tapes differentiate as before


def test_a_model_of_keras_is_built_as_by_its_first_step():
    inputs = layers.Input((4,))
    model = keras.Model(inputs, layers.Dense(3)(inputs))
    optimizer = keras.optimizers.Adam()
    model.compile(optimizer, "mse", metrics=["mae"])
    assert build_model(model, SPEC) == []
    assert len(optimizer.variables) == 2 + 2 * 2
    assert set(model.get_metrics_result()) == {"loss", "mae"}


class Largest(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="largest")
        self.value = self.add_variable((), "zeros")

    def update_state(self, value):
        self.value.assign(tf.maximum(self.value, value))

    def result(self):
        return self.value


def test_logs_and_metrics_that_depend_on_the_replicas_are_named():
    _, (of_metric, of_logs) = notes_of(tf.reduce_mean, lambda loss: {"error": loss}, Largest())
    assert "updates the metrics largest once per step without sample_weight" in of_metric
    assert of_logs.startswith("Own.train_step() returns error, which no metric has")
    _, notes = notes_of(tf.reduce_mean, lambda loss: {}, keras.metrics.Mean(name="mean"))
    assert notes == []
