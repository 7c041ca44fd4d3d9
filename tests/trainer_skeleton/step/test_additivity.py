"""What of a step is a mean over the rows, a sum or neither, by computing it on parts of a batch."""

from __future__ import annotations

import random
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer.model.model_build import build_model
from distlaunch_trainer.step import custom_steps, losses
from distlaunch_trainer.step.additivity import compare_parts

layers, ops = keras.layers, keras.ops
SPEC = tuple(tf.TensorSpec((None, size), "float32") for size in (4, 3))


class Step(keras.Model):
    """A model whose step differentiates any function of the squared errors."""

    def __init__(self, function):
        super().__init__()
        self.hidden = keras.Sequential([layers.Dense(8), layers.BatchNormalization()])
        self.out, self.function = layers.Dense(3), function

    def train_step(self, data):
        x, y = data
        noise = tf.random.normal(tf.shape(y)) + keras.random.normal(tf.shape(y))
        with tf.GradientTape() as tape:
            outputs = self.out(self.hidden(x, training=True)) + noise
            loss = self.function(tf.square(outputs - y))
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {}


STEPS = [
    (tf.reduce_mean, "mean"),
    (lambda errors: tf.reduce_mean(tf.reduce_sum(errors, axis=1)), "mean"),
    (lambda errors: tf.reduce_sum(errors) / tf.cast(tf.shape(errors)[0], errors.dtype), "mean"),
    (lambda errors: keras.losses.MeanSquaredError(reduction="sum")(errors, 0 * errors), "mean"),
    (lambda errors: keras.losses.MeanSquaredError()(errors, 0 * errors), "mean"),
    (tf.reduce_sum, "sum"),
    (lambda errors: 1.0 + tf.reduce_sum(errors) / 32, "sum"),
    (lambda errors: tf.reduce_mean(errors, axis=1), "sum"),
    (lambda errors: tf.reduce_sum(errors) + tf.reduce_mean(errors), None),
    (lambda errors: tf.reduce_mean(tf.matmul(errors, errors, transpose_a=True)), "sum"),
    (lambda errors: tf.reduce_mean(tf.matmul(errors, errors, transpose_b=True)), None),
]


@pytest.mark.parametrize(("function", "kind"), STEPS, ids=range(len(STEPS)))
def test_gradients_of_a_step_by_what_they_are_of_the_rows(function, kind):
    """Neither random numbers nor the statistics of a batch normalization count."""
    model = Step(function)
    model.compile("sgd")
    build_model(model, SPEC)
    notes = compare_parts(model, SPEC)
    line = f"Step.train_step() (tests/{__file__.partition('tests/')[2]}, line 36)"
    assert [note.partition(" computes ")[0] for note in notes] == ([] if kind else [line])
    assert custom_steps.gradient_kinds[model] == [kind]


class Sharpness(Step):
    """Differentiates at weights that it moves by a gradient, or by none."""

    def __init__(self, radius):
        super().__init__(tf.reduce_mean)
        self.radius = radius

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.out(self.hidden(x)) - y))
        (gradient,) = tape.gradient(loss, [self.out.kernel])
        self.out.kernel.assign_add(self.radius * gradient)
        return super().train_step(data)


@pytest.mark.parametrize("radius", [0.0, 0.5])
def test_a_step_that_assigns_weights_by_the_rows_of_its_replica_is_named(radius):
    model = Sharpness(radius)
    model.compile("sgd")
    build_model(model, SPEC)
    notes = compare_parts(model, SPEC)
    assert [note.partition(" by the rows")[0].rpartition(") ")[2] for note in notes] == (
        [f"assigns the weight {model.out.kernel.path}"] if radius else []
    )


class Adds(layers.Layer):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        self.add_loss(self.function(x))
        return x


def compared(*hidden, spec=SPEC, **options):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input(spec[0].shape[1:]), *hidden, layers.Dense(3, "sigmoid")])
    model.compile(**{"optimizer": "sgd", "loss": "mse", **options})
    build_model(model, spec)
    return model, compare_parts(model, spec)


def sum_by_a_loop(x):
    return tf.while_loop(
        lambda number, _: number < 9,
        lambda number, total: (number + 1, total + tf.reduce_sum(x)),
        (0, 0.0),
    )[1]


ADDED = [
    (tf.nn.l2_loss, True),
    (lambda x: ops.mean(ops.sum(x, axis=0)), True),
    (lambda x: ops.sum(x, axis=1), True),
    (lambda x: tf.reduce_mean(tf.linalg.matvec(x, x[0] * 0 + 1, transpose_a=False)), False),
    (sum_by_a_loop, True),
    (ops.mean, False),
    (lambda x: tf.numpy_function(lambda x: np.mean(x**2), [x], tf.float32), False),
    (lambda x: ops.sum(x) / ops.cast(ops.size(x), "float32"), False),
]


@pytest.mark.parametrize(("function", "is_sum"), ADDED, ids=range(len(ADDED)))
def test_added_losses_that_are_sums_over_the_rows(function, is_sum):
    layer = Adds(function)
    _, notes = compared(layers.Dropout(0.5), layers.BatchNormalization(), layer)
    assert notes == []
    assert [*losses.added_sums[layer].values()] == [is_sum]


def test_an_added_loss_that_is_zero_at_first_is_not_taken_for_known():
    _, (note,) = compared(Adds(lambda x: ops.sum(0.0 * x)))
    assert "is given 0 by the first weights, so it is not known whether" in note


def gathered(model):
    (loss,) = (each.loss for each in model._compile_loss._flat_losses)
    return loss.gathers_rows


def test_losses_that_are_means_over_the_rows_are_not_gathered():
    for loss in (
        "mse",
        "categorical_crossentropy",
        keras.losses.Dice(axis=-1),
        keras.losses.Huber(reduction="sum"),
    ):
        model, notes = compared(loss=loss)
        assert (notes, gathered(model)) == ([], False)
    model, notes = compared(loss=keras.losses.Dice())
    assert (notes, gathered(model)) == ([], True)
    assert compare_parts(model, SPEC) == []  # again, as of a second call of fit()
    assert gathered(model)


def known(select):
    def loss(y, p):
        weights = ops.cast(select(y), p.dtype)
        errors = ops.square(ops.where(weights > 0, y, 0) - p)
        return ops.sum(weights * errors) / ops.maximum(ops.sum(weights), 1)

    return loss


@pytest.mark.parametrize(
    ("loss", "gathers"),
    [
        (known(lambda y: ops.not_equal(y, 0)), True),
        (known(lambda y: ops.not_equal(y, -1)), True),
        (known(lambda y: ops.logical_not(ops.isnan(y))), True),
        (lambda y, p: ops.square(y - p) / ops.mean(ops.cast(ops.not_equal(y, -1), p.dtype)), True),
        (lambda y, p: ops.top_k(ops.sum(y - p, -1), 6)[0], True),  # of more rows than are made up
        (lambda y, p: ops.mean(ops.square(y - p) * ops.cast(ops.not_equal(y, -1), p.dtype)), False),
        (lambda y, p: ops.mean(ops.square(y - p)), False),
    ],
    ids=range(7),
)
def test_losses_that_leave_out_what_is_missing_are_gathered(loss, gathers):
    model, notes = compared(loss=loss)
    assert (notes, gathered(model)) == ([], gathers)


def test_a_loss_that_assigns_variables_changes_none():
    count, mean = tf.Variable(0.0), keras.metrics.Mean()

    def loss(y, p):
        errors = ops.mean(ops.square(y - p), -1)
        mean.update_state(errors)
        count.assign_add(ops.sum(errors))
        return errors

    model, _ = compared(loss=loss)
    assert gathered(model)  # so that they are those of one worker
    assert [float(v) for v in (*mean.variables, tf.math.is_finite(count))] == [0, 0, 1]


def test_a_model_with_a_table_of_few_positions_is_compared():
    spec = tf.TensorSpec((None, None), "int64"), SPEC[1]

    class Positions(layers.Embedding):
        def call(self, x):
            return x[..., None] + super().call(ops.arange(ops.shape(x)[1]))

    hidden = Positions(9, 4), layers.GlobalAveragePooling1D()
    model, notes = compared(*hidden, spec=spec, loss=keras.losses.Dice())
    assert (notes, gathered(model)) == ([], True)


class Ignores(keras.Sequential):
    """A model whose step does not use the compiled loss, which evaluation does."""

    train_step = Step.train_step
    hidden = property(lambda self: self.layers[0])
    out = property(lambda self: self.layers[1])
    function = staticmethod(tf.reduce_mean)


@pytest.mark.parametrize("trains", [True, False])
def test_the_compiled_loss_of_evaluation_is_compared_beside_a_step_of_the_model(trains):
    model = Ignores([layers.Dense(8), layers.Dense(3)])
    model.compile("sgd", keras.losses.Dice())
    build_model(model, SPEC)
    model.compute_loss(*(tf.ones((2, spec.shape[1])) for spec in SPEC), tf.ones((2, 3)))
    assert compare_parts(model, SPEC, trains=trains) == []
    assert gathered(model)


def test_no_loss_of_evaluation_is_compared_of_a_model_that_cannot_be_called():
    model = Step(tf.reduce_mean)
    model.compile("sgd", "mse")
    build_model(model, SPEC)
    assert compare_parts(model, SPEC) == []


def test_rows_that_cannot_be_exchanged_are_named_with_the_argument_that_helps():
    spec = SPEC[0], tf.RaggedTensorSpec((None, None), "float32")

    class Dice(keras.losses.Dice):
        def call(self, y_true, y_pred):
            return super().call(y_true.to_tensor(shape=(None, 3)), y_pred)

    _, (note,) = compared(spec=spec, loss=Dice(name="dice"))
    assert "the loss dice" in note
    assert "Dice(axis=(1,))" in note
    assert "the rows of y_true (RaggedTensor) cannot be exchanged" in note


def test_nothing_is_changed_or_drawn():
    class Counts(layers.Layer):
        def __init__(self):
            super().__init__()
            self.calls, self.mean = tf.Variable(0), keras.metrics.Mean()
            self.total = self.add_weight(shape=(), trainable=False, initializer="zeros")
            self.seeds = keras.random.SeedGenerator(1)

        def call(self, x):
            self.calls.assign_add(1)
            self.total.assign(self.total + ops.sum(x))
            self.mean.update_state(x)
            random.random(), np.random.rand(), tf.random.normal(())  # noqa: NPY002, S311
            return x + keras.random.normal((), seed=self.seeds)

    tf.random.set_seed(1)
    layer = Counts()
    model, notes = compared(layer, layers.BatchNormalization())
    before = [v.numpy() for v in model.variables]
    states = random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    tf.random.set_seed(1)
    expected = float(tf.random.normal(()))
    tf.random.set_seed(1)
    assert compare_parts(model, SPEC) == notes == []
    assert float(tf.random.normal(())) == expected
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    assert int(layer.calls) == 0
    assert random.getstate() == states[0]
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002


def test_a_step_that_refuses_made_up_numbers_is_named_and_trained():
    def refuse(x):
        tf.debugging.assert_greater(x, 7.0, "pixels out of range")
        return ops.mean(x)

    _, (note,) = compared(Adds(refuse))
    assert note.startswith(
        "Sequential was not compared on parts of a batch: InvalidArgumentError: pixels out of range"
    )


def test_layers_that_compute_with_several_rows_are_named_and_no_others():
    class Whitens(layers.Layer):
        def call(self, x):
            return x - ops.mean(x, axis=0)

    inner = keras.Sequential([layers.Dense(4), Whitens(name="whitens")])
    _, notes = compared(layers.BatchNormalization(), inner, layers.LayerNormalization())
    assert [note.partition(" (")[0] for note in notes] == ["the layer whitens of Whitens"]
    doubled = layers.Lambda(lambda x: ops.concatenate([x, x], axis=0)), layers.Dense(4)
    first_half = layers.Lambda(lambda x: x[: ops.shape(x)[0] // 2])
    assert compared(*doubled, layers.Dropout(0.5), first_half)[1] == []


def test_small_models_are_compared_in_well_under_a_second():
    hidden = [layers.Dense(16, "relu") for _ in range(4)]
    model, _ = compared(*hidden, layers.BatchNormalization(), layers.Dropout(0.5))
    start = time.process_time()
    compare_parts(model, SPEC)
    assert time.process_time() - start < 1
