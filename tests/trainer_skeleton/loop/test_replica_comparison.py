"""What ends a run because its replicas differ, and what does not."""

import json
import re

import pytest

PROGRAM = """
import json
import sys

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.errors import ModelError
from distlaunch_trainer import distributed_fit

layers = keras.layers
x = np.random.default_rng(0).normal(size=(6, 4))
keras.config.set_floatx("float64")


class Statistics(layers.Layer):
    def __init__(self, aggregation):
        super().__init__()
        self.mean = self.add_weight(shape=(4,), trainable=False, aggregation=aggregation)
        self.factor = self.add_weight(initializer="ones", trainable=False)

    def call(self, x, training=False):
        if training:
            self.mean.assign(0.5 * self.mean + 0.5 * keras.ops.mean(x, axis=0))
        return self.factor * (x - keras.ops.stop_gradient(self.mean))


class Change(keras.callbacks.Callback):
    \"\"\"Changes a variable on the last device alone, as a task's callback would.\"\"\"

    def __init__(self, variable, change):
        super().__init__()
        self.variable, self.change = variable, change

    def on_epoch_end(self, epoch, logs=None):
        value = parts(self.variable)[-1]
        value.assign(self.change(value))


class Orbax(keras.callbacks.OrbaxCheckpoint):
    def __init__(self):
        keras.callbacks.Callback.__init__(self)


def parts(variable):
    return tf.distribute.get_strategy().experimental_local_results(variable.value)


def fit(model, *callbacks):
    try:
        model.fit(x, x[:, :1], batch_size=4, epochs=2, callbacks=list(callbacks), verbose=0)
    except ModelError as error:
        return str(error)
    return "trained"


def faults():
    own = Statistics("none")
    model = keras.Sequential([keras.Input((4,)), own, layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    yield "own rows", fit(model)
    for name, variable, change in (
        ("rate", model.optimizer._learning_rate, lambda value: 2 * value),
        ("momentum", model.optimizer.variables[2], lambda value: value + 1),
        ("weight", model.layers[-1].kernel, lambda value: tf.reverse(value, [0])),
        ("constant", own.factor, lambda value: value + 0.5),
        ("rounding", model.layers[-1].kernel, lambda value: value * (1 + 1e-15)),
    ):
        yield name, fit(model, Change(variable, change))
        if name == "rounding":
            values = [part.numpy().tolist() for part in parts(variable)]
            yield "equal again", values[0] == values[1] == values[2]
        for part in parts(variable):
            part.assign(parts(variable)[0])
    yield "orbax", fit(model, Orbax())


def models():
    several = "sgd"
    if hasattr(keras.optimizers, "MultiOptimizer"):  # since Keras 3.15
        two = keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.01, gradient_accumulation_steps=2)
        several = keras.optimizers.MultiOptimizer(lambda variable: two["kernel" in variable.path])
    for optimizer in (
        keras.optimizers.Adam(0.01, gradient_accumulation_steps=2, use_ema=True, clipnorm=0.1),
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01, momentum=0.9)),
        keras.optimizers.SGD(0.01, gradient_accumulation_steps=3),
        several,
    ):
        spectral = layers.SpectralNormalization(layers.Dense(4))
        common = layers.BatchNormalization(), layers.Dropout(0.5), Statistics("mean")
        model = keras.Sequential([keras.Input((4,)), spectral, *common, layers.Dense(1)])
        model.compile(optimizer, "mse", jit_compile=isinstance(optimizer, keras.optimizers.SGD))
        yield model.optimizer.name, fit(model)


with distributed_fit(job_dir="job", resume=False):
    print(json.dumps(dict(globals()[sys.argv[1]]())))
"""


@pytest.fixture
def results(run_code):
    """Return a function for what a function of the program yields, and all that was printed."""

    def run(name):
        result = run_code(PROGRAM, name, DISTLAUNCH_DEVICES="3", TF_CPP_MIN_LOG_LEVEL="2")
        assert result.code == 0, result.text
        line = next(line for line in result.out.splitlines() if line.startswith("{"))
        return json.loads(line), result.text

    return run


def test_variables_that_differ_end_the_run_by_name(results):
    """Of three devices the last one has another value, as a callback of one task would set it."""
    found, text = results("faults")
    assert found["rate"].startswith(
        "the replicas differ after step 6: optimizer/learning_rate is 0.01 on chief, device 0, "
        "0.02 on chief, device 2; usually a callback, "
    )
    assert "dense/kernel/momentum on chief, device 2 is not that on chief, dev" in found["momentum"]
    assert "/dense/kernel on chief, device 2 is not that on chief, device 0; " in found["weight"]
    assert "/variable_1 is 1 on chief, device 0, 1.5 on chief, device 2; " in found["constant"]
    assert found["orbax"].startswith("OrbaxCheckpoint reads the metrics of all replicas")
    trained = [found[name] for name in ("own rows", "rounding", "equal again")]
    assert trained == ["trained", "trained", True]
    assert "differed by rounding in sequential/dense/kernel, as" in text
    own = r"each replica has its own statistics/variable of Statistics \(program.py, line \d+\), by"
    assert re.search(own, text)


def test_what_all_replicas_compute_alike_is_no_difference(results):
    """Six rows in batches of four: in the second step, one of three replicas has no row."""
    found, text = results("models")
    assert set(found.values()) == {"trained"}, found
    assert "each replica has its own" not in text
    assert "differed by rounding" not in text
