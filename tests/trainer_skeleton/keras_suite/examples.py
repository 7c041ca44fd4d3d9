"""Models and data in the manner of the examples of keras.io and tensorflow.org, made small.

Each function returns a compiled model and the arguments of its `fit`.
"""

from __future__ import annotations

import math
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
def convnet_with_dropout():
    """keras.io: Simple MNIST convnet."""
    model = sequential(
        layers.Input((8, 8, 1)),
        layers.Conv2D(4, 3, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Dense(3, activation="softmax"),
        loss="categorical_crossentropy",
        metrics=["accuracy"],
    )
    y = keras.utils.to_categorical(integers(3), 3)
    return model, {"x": numbers(8, 8, 1), "y": y, "validation_split": 0.2}


@example
def augmented_pictures_in_a_data_set():
    """keras.io: Image classification from scratch; rescaled, normalized and flipped."""
    normalization = layers.Normalization(axis=-1)
    normalization.adapt(numbers(6, 6, 3) * 50 + 100)
    x = layers.Input((6, 6, 3))
    hidden = layers.Rescaling(1 / 255)(layers.RandomFlip("horizontal", seed=1)(normalization(x)))
    for size in (4, 6):
        residual = layers.Conv2D(size, 1, strides=2, padding="same")(hidden)
        hidden = layers.SeparableConv2D(size, 3, padding="same")(layers.ReLU()(hidden))
        hidden = layers.BatchNormalization()(hidden)
        hidden = layers.add([layers.MaxPooling2D(3, 2, padding="same")(hidden), residual])
    hidden = layers.GlobalAveragePooling2D()(hidden)
    model = keras.Model(x, layers.Dense(1)(hidden))
    loss = losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-4), loss, metrics=[metrics.BinaryAccuracy(name="acc")])
    data = (numbers(6, 6, 3) * 50 + 100, integers(2, 1))
    batches = tf.data.Dataset.from_tensor_slices(data).batch(BATCH)
    return model, {"x": batches, "validation_data": batches}


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
def embedded_words():
    """keras.io: Bidirectional LSTM on IMDB."""
    model = sequential(
        layers.Embedding(10, 4, mask_zero=True),
        layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
        layers.Bidirectional(layers.GRU(3)),
        layers.Dense(1, activation="sigmoid"),
        loss="binary_crossentropy",
        metrics=["accuracy"],
    )
    return model, {"x": integers(10, 5), "y": integers(2, 1)}


class TransformerBlock(layers.Layer):
    """keras.io: Text classification with Transformer."""

    def __init__(self):
        super().__init__()
        self.attention = layers.MultiHeadAttention(num_heads=2, key_dim=3)
        self.feed_forward = keras.Sequential([layers.Dense(5, "relu"), layers.Dense(4)])
        self.normalizations = [layers.LayerNormalization(epsilon=1e-6) for _ in range(2)]
        self.dropout = layers.Dropout(0.1)

    def call(self, inputs, training=None):
        attended = self.dropout(self.attention(inputs, inputs), training=training)
        hidden = self.normalizations[0](inputs + attended)
        return self.normalizations[1](hidden + self.feed_forward(hidden))


@example
def transformer():
    x = layers.Input((5, 4))
    hidden = layers.GlobalAveragePooling1D()(TransformerBlock()(x))
    model = keras.Model(x, layers.Dense(2, activation="softmax")(hidden))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, {"x": numbers(5, 4), "y": integers(2), "validation_split": 0.3}


@example
def masked_steps_with_weights():
    """keras.io: Understanding masking; weights for each time step."""
    x = numbers(5, 3)
    x[np.arange(5) >= integers(5, 1) + 1] = 0
    model = sequential(
        layers.Input((5, 3)),
        layers.Masking(),
        layers.LSTM(4, return_sequences=True),
        layers.TimeDistributed(layers.Dense(1)),
        optimizer=keras.optimizers.RMSprop(clipnorm=0.3),
        metrics=["mae"],
        weighted_metrics=["mae"],
    )
    weights = np.abs(numbers(5, seed=2))
    return model, {"x": x, "y": numbers(5, 1, seed=1), "sample_weight": weights}


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
def imbalanced_classes():
    """keras.io: Imbalanced classification; class weights and many metrics."""
    counted = [metrics.FalseNegatives(name="fn"), metrics.TruePositives(name="tp")]
    rates = [metrics.Precision(name="precision"), metrics.Recall(name="recall")]
    model = sequential(
        layers.Input((6,)),
        layers.Dense(4, activation="relu"),
        layers.Dense(1, activation="sigmoid"),
        loss="binary_crossentropy",
        metrics=[*counted, *rates, metrics.AUC(name="auc", curve="PR")],
    )
    y = integers(2, 1)
    return model, {"x": numbers(6), "y": y, "class_weight": {0: 0.3, 1: 2.0}}


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
def outputs_of_all_kinds():
    """keras.io: The Functional API; named outputs, mixed losses, weights and metrics."""
    inputs = {"title": layers.Input((4,), name="title"), "tags": layers.Input((3,), name="tags")}
    hidden = layers.concatenate([layers.Dense(3)(part) for part in inputs.values()])
    outputs = {
        "priority": layers.Dense(1, name="priority")(hidden),
        "department": layers.Dense(4, name="department")(hidden),
    }
    model = keras.Model(inputs, outputs)
    model.compile(
        keras.optimizers.RMSprop(1e-3),
        loss={
            "priority": losses.BinaryCrossentropy(from_logits=True),
            "department": losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
        },
        loss_weights={"priority": 1.0, "department": 0.2},
        metrics={"priority": ["mae", "mse"], "department": "accuracy"},
        weighted_metrics={"department": ["accuracy"]},
    )
    weights = np.abs(numbers(seed=1))
    y = {
        "priority": integers(2, 1),
        "department": keras.utils.to_categorical(integers(4), 4),
    }
    x = {"title": numbers(4), "tags": numbers(3)}
    arguments = {"x": x, "y": y, "sample_weight": {"priority": weights, "department": weights**2}}
    return model, arguments


@example
def outputs_without_a_loss():
    """An output that is not trained, and None in place of its targets."""
    x = layers.Input((6,))
    hidden = layers.Dense(3, activation="tanh")(x)
    model = keras.Model(x, [layers.Dense(1)(hidden), hidden])
    model.compile("adam", ["mse", None])
    return model, {"x": numbers(6), "y": [numbers(1, seed=1), None]}


@example
def twins():
    """keras.io: Siamese network; shared layers, a Lambda, a loss of the user's."""
    embed = keras.Sequential([layers.Input((4,)), layers.BatchNormalization(), layers.Dense(3)])
    left, right = layers.Input((4,)), layers.Input((4,))
    distance = layers.Lambda(
        lambda pair: ops.sqrt(ops.sum((pair[0] - pair[1]) ** 2, axis=1, keepdims=True) + 1e-7)
    )([embed(left), embed(right)])
    model = keras.Model([left, right], layers.Dense(1, activation="sigmoid")(distance))

    def contrastive(y, predicted):
        y = ops.cast(y, predicted.dtype)
        return ops.mean((1 - y) * predicted**2 + y * ops.maximum(1 - predicted, 0) ** 2)

    model.compile("rmsprop", contrastive, metrics=["accuracy"])
    return model, {"x": [numbers(4), numbers(4, seed=1)], "y": integers(2, 1)}


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


@example
def methods_of_compute():
    """keras.io: Customizing fit(); loss and metrics of the user's."""

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)
            self.error = metrics.MeanAbsoluteError(name="error")

        def call(self, x):
            return self.dense(x["a"] + x["b"])

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            loss = super().compute_loss(x, y, y_pred, sample_weight, training)
            return loss + 1e-2 * ops.mean(x["a"] ** 2) * ops.mean(y_pred**2)

        def compute_metrics(self, x, y, y_pred, sample_weight=None):
            self.error.update_state(y, y_pred)
            results = super().compute_metrics(x, y, y_pred, sample_weight)
            return {**results, "twice": 2 * self.error.result()}

    model = Own()
    model.compile("sgd", "mse", metrics=["mse"])
    return model, {"x": {"a": numbers(6), "b": numbers(6, seed=1)}, "y": numbers(1)}


@example
def own_train_step():
    """keras.io: Customizing what happens in fit(), with metrics of the user's."""

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)
            self.mean_loss = metrics.Mean(name="loss")
            self.error = metrics.MeanAbsoluteError(name="mae")

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                loss = ops.mean(losses.mean_squared_error(y, predicted))
            gradients = tape.gradient(loss, self.trainable_weights)
            self.optimizer.apply(gradients, self.trainable_weights)
            self.mean_loss.update_state(loss)
            self.error.update_state(y, predicted)
            return {"loss": self.mean_loss.result(), "mae": self.error.result()}

        @property
        def metrics(self):
            return [self.mean_loss, self.error]

    model = Own()
    model.compile(keras.optimizers.Adam(1e-2, clipnorm=0.3))
    return model, {"x": numbers(6), "y": numbers(1, seed=1)}


@example
def generative_adversarial_network():
    """keras.io: DCGAN; two optimizers, and random numbers in the step."""

    class Gan(keras.Model):
        def __init__(self):
            super().__init__()
            self.seeds = keras.random.SeedGenerator(5)
            self.generator = keras.Sequential([layers.Input((2,)), layers.Dense(6)])
            self.critic = keras.Sequential([layers.Input((6,)), layers.Dense(1)])
            self.generator_loss = metrics.Mean(name="generator_loss")

        def compile(self, generator_optimizer, critic_optimizer):
            super().compile(optimizer=critic_optimizer)
            self.generator_optimizer = generator_optimizer

        def call(self, x):
            return self.critic(x)

        def train_step(self, x):
            x = x[0] if isinstance(x, tuple) else x
            noise = keras.random.normal((ops.shape(x)[0], 2), seed=self.seeds)
            with tf.GradientTape() as tape:
                loss = ops.mean(self.critic(self.generator(noise))) - ops.mean(self.critic(x))
            weights = self.critic.trainable_weights
            self.optimizer.apply(tape.gradient(loss, weights), weights)
            with tf.GradientTape() as tape:
                loss = -ops.mean(self.critic(self.generator(noise)))
            weights = self.generator.trainable_weights
            self.generator_optimizer.apply(tape.gradient(loss, weights), weights)
            self.generator_loss.update_state(loss)
            return {"generator_loss": self.generator_loss.result()}

    model = Gan()
    model.compile(keras.optimizers.Adam(1e-2), keras.optimizers.RMSprop(1e-2))
    return model, {"x": numbers(6)}


# Optimizers.


@example
def schedule_and_decay():
    rates = keras.optimizers.schedules.CosineDecay(0.0, 6, warmup_target=0.1, warmup_steps=3)
    optimizer = keras.optimizers.AdamW(rates, weight_decay=0.1, clipnorm=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model = sequential(
        layers.Input((6,)),
        layers.Dense(
            4,
            kernel_regularizer=keras.regularizers.L1L2(1e-3, 1e-3),
            activity_regularizer="l2",
            kernel_constraint=keras.constraints.MaxNorm(1.0),
        ),
        layers.Dense(1, kernel_constraint="non_neg", bias_regularizer="l2"),
        optimizer=optimizer,
    )
    return model, {"x": numbers(6), "y": numbers(1)}


@example
def accumulated_averaged_and_scaled():
    optimizer = keras.optimizers.Adam(
        1e-2,
        use_ema=True,
        ema_momentum=0.8,
        ema_overwrite_frequency=2,
        gradient_accumulation_steps=2,
        global_clipnorm=0.3,
    )
    optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=4.0)
    model = sequential(layers.Input((6,)), layers.Dense(1), optimizer=optimizer)
    return model, {"x": numbers(6), "y": numbers(1), "validation_split": 0.2}


# Data as `fit` takes it.


@example
def ragged_batches():
    """tensorflow.org: Ragged tensors; the model makes them dense, its parse function is Python."""
    lengths = integers(4) + 1
    values = tf.RaggedTensor.from_row_lengths(numbers(rows=int(lengths.sum())), lengths)

    class Pooled(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)

        def call(self, x):
            return self.dense(tf.reduce_mean(x, axis=1)[:, None])

    # AutoGraph cannot convert a lambda of several lines that it finds no source for.
    double = eval("lambda x, y: (x * 2.0, y)")  # noqa: S307
    batches = tf.data.Dataset.from_tensor_slices((values, numbers(1))).batch(BATCH).map(double)
    model = Pooled()
    model.compile("adam", "mse")
    return model, {"x": batches}


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return math.ceil(ROWS / BATCH)

    def __getitem__(self, number):
        rows = slice(number * BATCH, (number + 1) * BATCH)
        return numbers(6)[rows], numbers(1)[rows]


@example
def py_dataset():
    """keras.io: PyDataset."""
    return sequential(layers.Dense(1)), {"x": Batches(), "shuffle": False}


@example
def python_generator():
    def generate():
        while True:
            for number in range(len(Batches())):
                yield Batches()[number]

    return sequential(layers.Dense(1)), {"x": generate(), "steps_per_epoch": 4}


@example
def endless_data_set():
    batches = tf.data.Dataset.from_tensor_slices((numbers(6), numbers(1))).batch(BATCH).repeat()
    return sequential(layers.Dense(1)), {"x": batches, "steps_per_epoch": 4}


@example
def batches_of_several_sizes():
    """tensorflow.org: Neural machine translation; padded to the longest of each batch."""
    rows = [numbers(2, rows=n % 5 + 1, seed=n) for n in range(ROWS)]
    data = tf.data.Dataset.from_generator(
        lambda: ((row, row.sum()) for row in rows),
        output_signature=(tf.TensorSpec((None, 2), tf.float64), tf.TensorSpec((), tf.float64)),
    )
    # `fit` counts a step of the optimizer too many at the end of data of unknown length.
    data = data.apply(tf.data.experimental.assert_cardinality(ROWS))
    model = sequential(layers.Masking(), layers.GRU(3), layers.Dense(1))
    return model, {"x": data.padded_batch(BATCH)}
