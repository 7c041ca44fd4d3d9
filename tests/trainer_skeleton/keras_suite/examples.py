"""Models and data in the manner of the examples of keras.io and tensorflow.org, made small.

Each function returns a compiled model and the arguments of its `fit`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

layers, losses, metrics, ops = keras.layers, keras.losses, keras.metrics, keras.ops

Example = Callable[[], tuple[keras.Model, dict[str, Any]]]
EXAMPLES: dict[str, Example] = {}

ROWS, BATCH = 25, 8  # the last batch has one row


def example(function: Example) -> Example:
    EXAMPLES[function.__name__] = function
    return function


def numbers(*shape: int, rows: int = ROWS, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, *shape))


def integers(high: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, high, (ROWS, *shape))


def sequential(*hidden: keras.Layer, loss: Any = "mse", optimizer: Any = "adam", **options: Any):
    model = keras.Sequential(hidden)
    model.compile(optimizer, loss, **options)
    return model


# Pictures.


@example
def frozen_base():
    """keras.io: Transfer learning; batch normalization stays in inference mode."""
    base = keras.Sequential(
        [layers.Input((6, 6, 3)), layers.Conv2D(4, 3), layers.BatchNormalization()]
    )
    base.trainable = False
    x = layers.Input((6, 6, 3))
    hidden = layers.GlobalMaxPooling2D()(base(x, training=False))
    model = keras.Model(x, layers.Dense(1)(hidden))
    model.compile("adam", losses.BinaryCrossentropy(from_logits=True))
    return model, {"x": numbers(6, 6, 3), "y": integers(2, 1)}


@example
def segmentation():
    """keras.io: Image segmentation with a U-Net; weights for each pixel."""
    x = layers.Input((8, 8, 1))
    down = layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(x)
    up = layers.UpSampling2D(2)(layers.Conv2DTranspose(4, 3, padding="same")(down))
    model = keras.Model(x, layers.Conv2D(3, 1, activation="softmax")(layers.concatenate([x, up])))
    iou = metrics.MeanIoU(3, sparse_y_pred=False)
    model.compile(
        "rmsprop", "sparse_categorical_crossentropy", metrics=[iou], weighted_metrics=["accuracy"]
    )
    weights = np.abs(numbers(8, 8, seed=1))
    return model, {"x": numbers(8, 8, 1), "y": integers(3, 8, 8), "sample_weight": weights}


@example
def spectral_normalization():
    """keras.io: WGAN's critic; a layer whose wrapped weights change in the forward pass."""
    model = sequential(
        layers.Input((6, 6, 1)),
        layers.SpectralNormalization(layers.Conv2D(4, 3)),
        layers.LeakyReLU(),
        layers.Flatten(),
        layers.SpectralNormalization(layers.Dense(1), power_iterations=2),
        loss="hinge",
    )
    return model, {"x": numbers(6, 6, 1), "y": integers(2, 1) * 2 - 1}


# Text and sequences.


def texts() -> np.ndarray:
    words = np.array(["the", "cat", "sat", "on", "mat", "dog"])
    return np.array([" ".join(words[row]) for row in integers(6, 4)])


@example
def text_vectorized_in_the_data():
    """tensorflow.org: Basic text classification."""
    vectorize = layers.TextVectorization(8, output_mode="multi_hot")
    vectorize.adapt(texts())
    rows = tf.data.Dataset.from_tensor_slices((texts(), integers(2)))
    batches = rows.batch(BATCH).map(lambda x, y: (tf.cast(vectorize(x), tf.float64), y))
    model = sequential(
        layers.Dense(4, activation="relu"),
        layers.Dense(1, activation="sigmoid"),
        loss="binary_crossentropy",
        metrics=["accuracy"],
    )
    return model, {"x": batches, "validation_data": batches}


@example
def encoder_and_decoder():
    """keras.io: Sequence-to-sequence; two inputs as a list, states are passed on."""
    encoder, decoder = layers.Input((None, 4)), layers.Input((None, 5))
    _, *states = layers.LSTM(3, return_state=True)(encoder)
    hidden = layers.LSTM(3, return_sequences=True)(decoder, initial_state=states)
    model = keras.Model([encoder, decoder], layers.Dense(5, activation="softmax")(hidden))
    model.compile("rmsprop", "categorical_crossentropy", metrics=["accuracy"])
    y = keras.utils.to_categorical(integers(5, 6), 5)
    return model, {"x": [numbers(7, 4), numbers(6, 5)], "y": y}


@example
def connectionist_temporal_classification():
    """keras.io: Captcha OCR."""
    model = sequential(
        layers.Input((6, 4)),
        layers.GRU(5, return_sequences=True),
        layers.Dense(4),
        loss=losses.CTC(),
        optimizer="sgd",
    )
    return model, {"x": numbers(6, 4), "y": integers(3, 2) + 1}


# Tables.


@example
def dicts_of_strings_and_numbers():
    """keras.io: Structured data classification; dicts in, preprocessing in the model."""
    kinds = np.array(["cat", "dog", "fox"])[integers(3)]
    lookup = layers.StringLookup(output_mode="one_hot")
    lookup.adapt(kinds)
    normalization = layers.Normalization(axis=None)
    normalization.adapt(numbers())
    inputs = {
        "kind": layers.Input((1,), name="kind", dtype="string"),
        "age": layers.Input((1,), name="age"),
    }
    encoded = ops.cast(lookup(inputs["kind"]), "float64")
    hidden = layers.concatenate([encoded, normalization(inputs["age"])])
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(hidden))
    model.compile("adam", "binary_crossentropy", metrics=["accuracy", "auc"])
    data = ({"kind": kinds[:, None], "age": numbers(1)}, integers(2, 1))
    return model, {"x": tf.data.Dataset.from_tensor_slices(data).batch(BATCH)}


@example
def metrics_of_several_values():
    """One value for each class, a dict, and a metric of the user's."""

    class Extremes(metrics.Metric):
        def __init__(self):
            super().__init__(name="extremes")
            self.low, self.high = (
                self.add_weight(shape=(), initializer="zeros", name=name)
                for name in ("low", "high")
            )

        def update_state(self, y, predicted, sample_weight=None):
            self.low.assign(ops.minimum(self.low, ops.min(predicted)))
            self.high.assign(ops.maximum(self.high, ops.max(predicted)))

        def result(self):
            return {"low": ops.copy(self.low), "high": ops.copy(self.high)}

    model = sequential(
        layers.Input((6,)),
        layers.Dense(3, activation="softmax"),
        loss="categorical_crossentropy",
        metrics=[metrics.F1Score(name="f1"), Extremes(), metrics.Recall(class_id=1)],
    )
    y = keras.utils.to_categorical(integers(3), 3)
    mean = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: logs["f1"].mean())
    data = {"x": numbers(6), "y": y, "validation_data": (numbers(6), y)}
    return model, {**data, "callbacks": [mean]}


@example
def outputs_without_a_loss():
    """An output that is not trained, and None in place of its targets."""
    x = layers.Input((6,))
    hidden = layers.Dense(3, activation="tanh")(x)
    model = keras.Model(x, [layers.Dense(1)(hidden), hidden])
    model.compile("adam", ["mse", None])
    return model, {"x": numbers(6), "y": [numbers(1, seed=1), None]}


# Models of the user's.


@example
def autoencoder_of_only_x():
    """keras.io: Convolutional autoencoder, nested models; the loss is one that a layer adds."""

    class Reconstruction(layers.Layer):
        def call(self, x, decoded):
            self.add_loss(ops.mean((x - decoded) ** 2))
            return decoded

    encoder = keras.Sequential([layers.Input((6,)), layers.Dense(3, "tanh")], name="encoder")
    decoder = keras.Sequential([layers.Input((3,)), layers.Dense(6)], name="decoder")
    x = layers.Input((6,))
    model = keras.Model(x, Reconstruction()(x, decoder(encoder(x))))
    model.compile("adam")
    return model, {"x": numbers(6), "validation_data": (numbers(6, seed=1),)}


@example
def sampled_latent_space():
    """keras.io: Variational autoencoder; a layer that draws numbers, and counts its own losses."""

    class Variational(keras.Model):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = layers.Dense(4), layers.Dense(6)
            self.seeds = keras.random.SeedGenerator(7)
            self.divergence = metrics.Mean(name="divergence")

        def call(self, x):
            mean, variance = ops.split(self.encode(x), 2, axis=-1)
            noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
            loss = -0.5 * ops.mean(1 + variance - mean**2 - ops.exp(variance))
            self.add_loss(loss)
            self.divergence.update_state(loss)
            return self.decode(mean + ops.exp(0.5 * variance) * noise)

    model = Variational()
    model.compile("adam", "mse")
    return model, {"x": numbers(6), "y": numbers(6), "validation_split": 0.2}


@example
def layers_with_state():
    """keras.io: Making new layers; a count of rows that a forward pass adds to."""

    class Sum(layers.Layer):
        def __init__(self):
            super().__init__()
            self.total = self.add_weight(shape=(6,), initializer="zeros", trainable=False)

        def call(self, x, training=False):
            if training:
                self.total.assign_add(ops.sum(x, axis=0))
            return x + self.total * 1e-3

    model = sequential(Sum(), layers.Dense(1), metrics=["mae"])
    return model, {"x": numbers(6), "y": numbers(1), "validation_split": 0.2}
