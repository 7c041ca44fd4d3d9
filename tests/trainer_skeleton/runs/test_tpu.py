"""A TPU is not at hand: XLA compiles each step for a CPU, as TPUStrategy has it do for a TPU."""

import json

import keras
import pytest

pytestmark = pytest.mark.slow

# TPUStrategy compiles what it runs, which fails for a shape that is not known, a collective of
# hosts, or a Python function.
COMPILED = """
import sys
import tensorflow as tf
from trainer import task

class Compiling(tf.distribute.OneDeviceStrategy):
    def __init__(self, resolver):
        assert resolver == "resolver of my-tpu"
        super().__init__("CPU:0")

    def run(self, fn, args=(), kwargs=None, options=None):
        return super().run(tf.function(fn, jit_compile=True, autograph=False), args, kwargs)

tf.distribute.TPUStrategy = Compiling
tf.distribute.cluster_resolver.TPUClusterResolver.connect = lambda name: f"resolver of {name}"
sys.exit(task.main())
"""

MODEL = """
import keras

def create_model():
    layers = keras.layers
    model = keras.Sequential([
        layers.Input((5,), dtype="int32"),
        layers.Embedding(20, 4),
        layers.Flatten(),
        layers.Dense(8, use_bias=False),
        layers.BatchNormalization(),
        layers.Activation("tanh"),
        layers.Dropout(0.1),
        layers.Dense(1),
    ])
    optimizer = keras.optimizers.Adam(1e-2, global_clipnorm=1.0)
    model.compile(optimizer, "mse", metrics=["mae"], jit_compile=True)
    return model
"""

DATA = """
import os
import numpy as np
import tensorflow as tf
from distlaunch_trainer import Arrays

def arrays(examples):
    x = np.random.default_rng(examples).integers(20, size=(examples, 5))
    return x, x.sum(1, keepdims=True) / 50.0

def training():
    if "AS_DATASET" in os.environ:
        return tf.data.Dataset.from_tensor_slices(arrays(50)).batch(8)
    return Arrays(*arrays(50))

def validation():
    return Arrays(*arrays(20))
"""

OPTIONS = ("--strategy=tpu", "--tpu=my-tpu", "--global-batch-size=8", "--epochs=2")


@pytest.fixture(scope="module")
def project(new_project):
    project = new_project(MODEL, DATA)
    project.write("compiled.py", COMPILED)
    return project


def test_the_steps_of_a_tpu_are_compiled_for_one_shape(project):
    result = project.run("compiled", "--job-dir=job", *OPTIONS)
    assert result.code == 0, result.text
    assert "strategy: tpu, 1 replica\n" in result.out
    left_out = "a TPU trains on batches of one size: the last {} examples are left out"
    assert left_out.format("2 of 50") in result.err
    assert left_out.format("4 of 20") in result.err
    summary = json.loads((project.folder / "job/summary.json").read_text())
    assert (summary["examples_per_epoch"], summary["validation_examples"]) == (48, 16)
    losses = [epoch["logs"]["val_loss"] for epoch in summary["epochs"]]
    assert losses[1] < losses[0]
    assert keras.models.load_model(project.folder / "job/model/model.keras").count_params()


def test_batches_of_several_sizes_are_refused(project):
    result = project.run("compiled", "--job-dir=other", *OPTIONS, AS_DATASET="1")
    assert result.code == 1
    assert "trainer: error: a TPU trains on batches of one size: end the data set" in result.err
    assert "Traceback" not in result.err
