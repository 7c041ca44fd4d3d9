"""Models are built without being trained, and steps that depend on the replicas are named."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer.model.model_build import build_model

layers = keras.layers
SPEC = tuple(tf.TensorSpec((None, size), "float32") for size in (4, 3))


class Own(keras.Model):
    """A model whose step differentiates any function of the squared errors."""

    def __init__(self, loss, logs=lambda loss: {}):
        super().__init__()
        self.hidden = keras.Sequential([layers.Dense(8), layers.BatchNormalization()])
        self.out = layers.Dense(3)
        self.optimizers = [keras.optimizers.Adam(), keras.optimizers.SGD()]
        self.loss_function = loss
        self.logs = logs

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.loss_function(tf.square(self.out(self.hidden(x, training=True)) - y))
        weights = self.hidden.trainable_weights + self.out.trainable_weights
        gradients = tape.gradient(loss, weights)
        for optimizer in self.optimizers:
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return self.logs(loss)


def notes_of(*arguments):
    model = Own(*arguments)
    model.compile()
    return model, build_model(model, SPEC)


@pytest.mark.skipif(not hasattr(keras.optimizers, "MultiOptimizer"), reason="since Keras 3.15")
def test_the_optimizers_of_a_multi_optimizer_are_built_and_update_nothing():
    model = keras.Sequential([layers.Input((4,)), layers.Dense(3)])
    optimizers = [keras.optimizers.Adam(), keras.optimizers.SGD(momentum=0.5)]
    model.compile(keras.optimizers.MultiOptimizer(lambda v: optimizers["bias" in v.path]), "mse")
    assert build_model(model, SPEC) == []
    assert [len(each.variables) for each in optimizers] == [2 + 2, 2 + 1]
    assert not np.any([each.iterations for each in (model.optimizer, *optimizers)])


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


class Counts(layers.Layer):
    """Counts its calls in functions of TensorFlow, which keep what is traced in them."""

    def build(self, _):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.dense = layers.Dense(3)

    @tf.function
    def call(self, x):
        if tf.reduce_sum(x) > -1e9:
            self.count.assign_add(1.0)
        return self.dense(x) + 0 * self.count


class Positives(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="positives")
        self.count = self.add_variable((), "zeros")

    @tf.function
    def update_state(self, y_true, y_pred, sample_weight=None):
        for _ in tf.range(2):
            self.count.assign_add(tf.reduce_sum(y_true) / 2)

    @tf.function
    def result(self):
        return self.count + 0


def test_variables_that_inner_functions_update_are_built_without_updates():
    """The strategy is the same for the build and the steps, so that a trace could be used again."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = Counts()

        def call(self, x):
            return self.inner(x)

    model = Model()
    model.compile("sgd", "mse", metrics=[Positives()])
    assert build_model(model, SPEC) == []
    assert not any(model.get_metrics_result().values())
    assert float(model.inner.count.value) == 0
    arrays = np.ones((5, 4), "float32"), np.ones((5, 3), "float32")
    assert model.train_on_batch(*arrays, return_dict=True)["positives"] == 15
    assert float(model.inner.count.value) == 1


class Lazy(layers.Layer):
    def build(self, shape):
        self.inner = layers.Dense(2)
        self.drop = layers.Dropout(0.5)

    def call(self, x):
        return self.drop(self.inner(x))


def functional():
    inputs = keras.Input((3,))
    return keras.Model(inputs, layers.Dense(1)(layers.Dense(2)(inputs)))


@pytest.mark.parametrize(
    "create",
    [
        functional,
        lambda: keras.Sequential([layers.Dense(3), Lazy(), layers.Dense(1)]),
        lambda: keras.Sequential([keras.Input((3,)), Lazy()]),
    ],
    ids=["functional", "without an input", "layers made late"],
)
def test_names_after_a_build_are_those_after_a_fit(create):
    """Of a second model: of its layers and variables, and of the inputs of its signatures."""

    def names(prepare):
        keras.backend.clear_session()
        model = create()
        model.compile("sgd", "mse", metrics=["mae"])
        prepare(model)
        model.fit(np.zeros((4, 3)), np.zeros((4, 1)), verbose=0)
        second = functional()
        parts = [*second.layers, *second.inputs, *second.variables, *model.layers]
        return [getattr(part, "path", part.name) for part in parts]

    def build(model):
        batch = tf.TensorSpec((None, 3)), tf.TensorSpec((None, 1)), None
        build_model(model, batch)

    assert names(build) == names(lambda _: None)


def test_logs_that_depend_on_the_replicas_are_named():
    _, (note,) = notes_of(tf.reduce_mean, lambda loss: {"error": loss})
    assert note.startswith("Own.train_step() returns error, which no metric has")
