"""Trains models on a user's `tf.data.Dataset` in one process with virtual devices.

    python -m train_user_data --folder FOLDER --replicas N... --data NAME...

Writes the final weights as FOLDER/NAME-N.npz and the events as FOLDER/NAME-N.jsonl. One process
takes one number of replicas above 1: TensorFlow's collectives do not take two.
"""

from __future__ import annotations

import argparse
import functools
import os
from dataclasses import asdict

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer import run, run_start
from distlaunch_trainer.options import Settings

ROWS, BATCH = 41, 10  # the last batch has one row, fewer than there are replicas
random = np.random.default_rng(1)
X = random.normal(size=(ROWS, 4))
Y = np.sin(X.sum(1, keepdims=True))
WORDS = [random.integers(1, 9, 1 + number % 7) for number in range(ROWS)]

Dataset = tf.data.Dataset
layers = keras.layers


def compiled(model):
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9, global_clipnorm=0.5), "mse")
    return model


def dense():
    return compiled(keras.Sequential([layers.Dense(8, "tanh"), layers.Dense(1)]))


def masked():
    words = [layers.Embedding(9, 4, mask_zero=True), layers.GlobalAveragePooling1D()]
    return compiled(keras.Sequential([*words, layers.Dense(1)]))


def quantized():
    """Only biases train."""
    model = keras.Sequential([layers.Input((4,)), layers.Dense(8, "tanh"), layers.Dense(1)])
    model.quantize("int8")
    return compiled(model)


class Pooled(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(9, 4)
        self.dense = layers.Dense(1)

    def call(self, words):
        vectors = tf.ragged.map_flat_values(self.embedding, words)
        return self.dense(tf.reduce_mean(vectors, axis=1))


def texts():
    types = tf.TensorSpec([None], tf.int64), tf.TensorSpec([1], tf.float64)
    rows = Dataset.from_generator(lambda: zip(WORDS, Y, strict=True), output_signature=types)
    return rows.shuffle(20)


# AutoGraph cannot convert it.
WITHOUT_SOURCE = eval("lambda words, y: (words + 0, y)")  # noqa: S307


def shuffled():
    return Dataset.from_tensor_slices((X, Y)).shuffle(20).batch(BATCH)


DATA = {
    "shuffled": (shuffled, dense),
    "quantized": (shuffled, quantized),
    "padded": (lambda: texts().padded_batch(BATCH), masked),
    "ragged": (lambda: texts().ragged_batch(BATCH).map(WITHOUT_SOURCE), lambda: compiled(Pooled())),
    "bucketed": (
        lambda: texts().bucket_by_sequence_length(lambda x, _: tf.size(x), [3, 5], [9, 7, 5]),
        masked,
    ),
}


class Keep(keras.callbacks.Callback):
    """Writes the weights, those of the optimizer too."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_train_end(self, logs=None):
        variables = [*self.model.weights, *self.model.optimizer.variables]
        np.savez(self.path, *[np.asarray(variable.value) for variable in variables])


@functools.cache
def strategy_of(replicas):
    if replicas == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(replicas)])


def train(name, replicas, folder):
    data, create_model = DATA[name]
    path = f"{folder}/{name}-{replicas}"
    os.environ["DISTLAUNCH_EVENTS"] = f"{path}.jsonl"
    run_start.connect = lambda *_: strategy_of(replicas)
    settings = Settings(job_dir=path, epochs=2, seed=3, precision="float64", debug=True)
    with run.Run(argparse.Namespace(**asdict(settings))) as training:
        training.load_data(data)
        with training.strategy.scope():
            model = training.build_model(create_model)
        training.fit(model, [Keep(f"{path}.npz")])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder")
    parser.add_argument("--replicas", type=int, nargs="+")
    parser.add_argument("--data", nargs="+")
    options = parser.parse_args()
    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * max(options.replicas)
    tf.config.set_logical_device_configuration(cpu, devices)
    for name in options.data:
        for replicas in options.replicas:
            train(name, replicas, options.folder)
