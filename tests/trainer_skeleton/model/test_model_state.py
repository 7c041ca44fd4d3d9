from __future__ import annotations

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.model.model_state import ModelState, find_optimizers
from distlaunch_trainer.model.variable_names import unique_names

layers = keras.layers


def test_duplicates_get_a_suffix():
    assert unique_names(["a", "b", "a", "a"]) == ["a", "b", "a#2", "a#3"]


def model_of(*hidden, optimizer="adam"):
    model = keras.Sequential([layers.Input((4,)), *hidden])
    model.compile(optimizer, "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def nested(*, activation="relu", optimizer="adam"):
    inner = keras.Sequential([layers.Dense(4, activation), layers.BatchNormalization()])
    return model_of(layers.Dense(4), layers.Dropout(0.5), inner, optimizer=optimizer)


def state_of(model):
    return ModelState(model, tf.distribute.get_strategy())


def test_a_model_has_the_same_names_wherever_it_is_created():
    first = state_of(nested())
    later = state_of(nested())
    assert later.describe() == first.describe()
    later.check_same(json.loads(json.dumps(first.describe())))
    assert "optimizer/sequential_1/sequential/dense/kernel/velocity" in first.variables
    assert "seed_generator/seed_generator_state" in first.variables
    assert len(first.variables) == 9 + 2 + 2 * 6


class Gan(keras.Model):
    def __init__(self, generator_optimizer, critics=()):
        super().__init__()
        self.generator = layers.Dense(1)
        self.generator_optimizer = generator_optimizer
        self.critics = list(critics)
        self.build((None, 3))

    def build(self, shape):
        self.generator.build(shape)
        for optimizer in [self.generator_optimizer, *self.critics]:
            optimizer.build(self.trainable_variables)

    def call(self, x):
        return self.generator(x)


def test_all_optimizers_of_a_model_are_included():
    known = keras.optimizers
    shared = known.RMSprop()
    model = Gan(known.LossScaleOptimizer(known.SGD(momentum=0.9)), [shared, known.Adam(), shared])
    assert list(find_optimizers(model)) == ["generator_optimizer", "critics/0", "critics/1"]
    state = state_of(model)
    assert {
        "generator_optimizer/dynamic_scale",
        "generator_optimizer/gan/dense/kernel/momentum",
        "critics/0/gan/dense/kernel/velocity",
        "critics/1/gan/dense/kernel/velocity",
    } <= set(state.variables)
    assert state.describe()["optimizers"]["generator_optimizer"] == "LossScaleOptimizer(SGD)"


def dense(*units, **options):
    return lambda: model_of(*(layers.Dense(size, **options) for size in units))


def named(**activations):
    return lambda: model_of(*(layers.Dense(4, a, name=n) for n, a in activations.items()))


def two(*activations):
    return lambda: model_of(*(layers.Dense(4, a) for a in activations))


def gan(*critics):
    return lambda: Gan(keras.optimizers.Adam(), [create() for create in critics])


def regularized(regularizer, rate):
    return lambda: model_of(layers.Dense(4, kernel_regularizer=regularizer), layers.Dropout(rate))


REMEDY = "; use a new --job-dir, or --no-resume to start from scratch"


@pytest.mark.parametrize(
    ("saved", "current", "difference"),
    [
        (
            nested,
            lambda: nested(optimizer="adamax"),
            "model.optimizer differs: class is 'Adam' in the checkpoint and 'Adamax' here",
        ),
        (
            two("relu", "tanh"),
            two("tanh", "relu"),
            "layer dense (Dense) differs: activation is 'relu' in the checkpoint and 'tanh' here",
        ),
        (
            named(first=None, second=None),
            named(second=None, first=None),
            "layer first (Dense) of the checkpoint is layer second (Dense) here",
        ),
        (
            named(block_1=None, block_2=None),
            named(block_2=None, block_1=None),
            "layer block (Dense) of the checkpoint is layer block_1 (Dense) here",
        ),
        (
            dense(4),
            dense(5),
            "layer dense (Dense) differs: units is 4 in the checkpoint and 5 here",
        ),
        (dense(4), dense(4, 4), "only this model has layer dense_1 (Dense)"),
        (dense(4, 4), dense(4), "only the checkpoint has layer dense_1 (Dense)"),
        (dense(4), dense(4, dtype="mixed_bfloat16"), None),
        (
            dense(4),
            dense(4, dtype="bfloat16"),
            "variable sequential/dense/kernel differs: dtype is 'float32' in the checkpoint and "
            "'bfloat16' here",
        ),
        (dense(4), gan(), "model Sequential of the checkpoint is model Gan here"),
        (gan(keras.optimizers.Adam), gan(), "only the checkpoint has model.critics/0"),
        (regularized("l2", 0.5), regularized(None, 0.1), None),
    ],
)
def test_a_checkpoint_of_another_model_is_refused_by_name(saved, current, difference):
    described = json.loads(json.dumps(state_of(saved()).describe()))
    state = state_of(current())
    if difference is None:
        state.check_same(described)
        return
    with pytest.raises(ModelError) as refused:
        state.check_same(described)
    assert str(refused.value) == f"the checkpoint is not of this model: {difference}{REMEDY}"


def test_training_does_not_change_a_snapshot():
    """Dense updates, sparse ones and assignments."""
    model = model_of(layers.Dense(4))
    state = state_of(model)
    expected = {name: v.value.numpy() for name, v in state.variables.items()}
    snapshot = state.snapshot()
    model.optimizer.apply([tf.ones_like(v) for v in model.trainable_variables])
    kernel = model.trainable_variables[0]
    rows = tf.IndexedSlices(tf.ones((1, 4)), tf.constant([1]), tf.constant([4, 4]))
    model.optimizer.apply([rows], [kernel])
    model.layers[0].bias.assign_add(np.ones(4))
    for name, value in expected.items():
        np.testing.assert_array_equal(snapshot[name], value)
        assert (
            name.endswith("learning_rate") or (state.variables[name].value != value).numpy().any()
        )


DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "int8", "uint8", "int64", "bool")


def zero_and_one(_, dtype):
    return tf.cast(tf.constant([0.0, 1.0]), dtype)


def test_values_of_every_type_are_restored():
    class Constants(layers.Layer):
        def build(self, _):
            for dtype in DTYPES:
                self.add_weight((2,), zero_and_one, dtype, trainable=False)

        def call(self, x):
            return x

    state = state_of(model_of(layers.Dense(4), Constants()))
    values = state.snapshot()
    for variable in state.variables.values():
        variable.assign(np.zeros(variable.shape, variable.dtype))
    state.assign(list(values.values()))
    for name, value in state.snapshot().items():
        assert value.dtype == values[name].dtype
        assert value.tobytes() == values[name].tobytes()
    assert {value.dtype.name for value in values.values()} >= set(DTYPES)
