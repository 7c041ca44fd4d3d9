"""Models as people write them, and data for each, small enough to train all of them on any cluster.

121 examples in batches of 12: the last batch has one row, fewer than most clusters have workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES, VALIDATION, BATCH, SEED = 121, 37, 12, 3

layers = keras.layers


@dataclass(frozen=True)
class Case:
    """A model and its data: ``(x, y, sample_weight, class_weight)`` of a number of examples."""

    create_model: Callable[[], keras.Model]
    data: Callable[[int], tuple[Any, ...]]
    sync_batch_norm: bool = False
    precision: str = "float64"
    as_fit: bool = True  # whether `fit` must come to the same history
    epochs: int = 2
    train_step: Callable[..., tf.Tensor] | None = None  # `fit` minimizes the compiled loss


CASES: dict[str, Case] = {}


def case(data, **options):
    def add(create_model):
        CASES[create_model.__name__] = Case(create_model, data, **options)
        return create_model

    return add


def features(examples):
    random = np.random.default_rng(examples)
    return random.normal(size=(examples, 6)), random


def weighted(examples):
    x, random = features(examples)
    return x, np.sin(x.sum(1, keepdims=True)), 0.5 + random.random(examples), None


def classes(examples):
    x, _ = features(examples)
    return x, (x.sum(1) > 1).astype(int) + (x[:, 0] > 0), None, None


def rare_classes(examples):
    return (*classes(examples)[:2], None, {0: 0.5, 2: 3.0})


def two_sides(examples):
    x, y, weights, _ = weighted(examples)
    inputs = {"left": x[:, :3], "right": x[:, 3:]}
    return inputs, {"one": y, "two": np.cos(y)}, {"one": weights, "two": weights[::-1]}, None


def three_targets(examples):
    x, y, weights, _ = weighted(examples)
    return x, [y, np.cos(y), y**2], [weights] * 3, None


def sequences(examples):
    """Of one to five steps; the rest is masked."""
    random = np.random.default_rng(examples)
    x = random.normal(size=(examples, 5, 3)) + 0.1
    x[np.arange(5) >= random.integers(1, 6, (examples, 1))] = 0
    return x, np.sin(x.sum(-1, keepdims=True)), None, None


def words(examples):
    random = np.random.default_rng(examples)
    x = random.integers(1, 9, (examples, 5)) * (np.arange(5) < random.integers(1, 6, (examples, 1)))
    return x, x % 3, None, None


def weighted_steps(examples):
    x, *_ = sequences(examples)
    weights = np.random.default_rng(examples + 1).random((examples, 5))
    return x, np.sin(x.sum(-1, keepdims=True)), weights, None


def pairs(examples):
    x, y, _, _ = weighted(examples)
    return [x, x[::-1]], (y > 0).astype(int), None, None


def one_hot_classes(examples):
    x, y, _, _ = classes(examples)
    return x, np.eye(3)[y], None, None


def pictures(examples):
    random = np.random.default_rng(examples)
    x = random.normal(size=(examples, 6, 6, 2)) * 3 + 5
    return x, (x.mean((1, 2, 3)) > 5).astype(int), None, None


def sequential(optimizer, loss, *hidden, **options):
    model = keras.Sequential(hidden)
    model.compile(optimizer, loss, **options)
    return model


def mlp(optimizer, loss="mse", outputs=1, **options):
    hidden = layers.Input((6,)), layers.Dense(8, activation="tanh")
    return sequential(optimizer, loss, *hidden, layers.Dense(outputs), **options)


@case(weighted)
def momentum_and_regularisers():
    return sequential(
        keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True, global_clipnorm=0.5),
        "mse",
        layers.Input((6,)),
        layers.Dense(8, "tanh", kernel_regularizer="l2", activity_regularizer="l2"),
        # Not "l1", which Keras 3.12 cannot add to a loss in float64.
        layers.Dense(1, bias_regularizer=keras.regularizers.L1L2(l1=0.01)),
        metrics=["mae"],
        weighted_metrics=["mae"],
    )


@case(rare_classes)
def class_weights():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return mlp(keras.optimizers.Adam(1e-2, clipvalue=0.01), loss, 4, metrics=["accuracy"])


@case(two_sides)
def two_inputs_and_outputs():
    sides = {name: layers.Input((3,), name=name) for name in ("left", "right")}
    hidden = layers.Dense(8, activation="tanh")(layers.Concatenate()(list(sides.values())))
    outputs = {name: layers.Dense(1, name=name)(hidden) for name in ("one", "two")}
    model = keras.Model(sides, outputs)
    losses = {"one": "mse", "two": keras.losses.Huber(reduction="sum")}
    optimizer = keras.optimizers.AdamW(1e-2, clipnorm=0.1)
    loss_weights = {"one": 0.3, "two": 0.7}
    model.compile(optimizer, losses, loss_weights, metrics={"one": ["mae"]})
    return model


@case(three_targets)
def every_reduction():
    x = layers.Input((6,))
    hidden = layers.Dense(8, activation="tanh")(x)
    model = keras.Model(x, [layers.Dense(1, name=name)(hidden) for name in "abc"])
    reductions = ("sum_over_batch_size", "sum", "mean_with_sample_weight")
    losses = [keras.losses.MeanSquaredError(reduction=name) for name in reductions]
    model.compile(keras.optimizers.SGD(1e-2), losses)
    return model


@case(weighted)
def unreduced_loss():
    return mlp(keras.optimizers.SGD(1e-3), keras.losses.MeanAbsoluteError(reduction="none"))


@case(sequences)
def masked_sequences():
    return sequential(
        "adam",
        "mse",
        layers.Input((5, 3)),
        layers.Masking(),
        layers.Dense(6, activation="tanh"),
        layers.BatchNormalization(synchronized=True),
        layers.Dense(1),
        metrics=["mae"],
    )


@case(words)
def masked_words():
    return sequential(
        keras.optimizers.Adam(1e-2, global_clipnorm=0.1),
        "sparse_categorical_crossentropy",
        layers.Input((5,), dtype="int32"),
        layers.Embedding(9, 4, mask_zero=True),
        layers.GRU(6, return_sequences=True, kernel_regularizer="l2"),
        layers.Dense(3, activation="softmax"),
    )


@case(pictures, sync_batch_norm=True)
def normalisation_synchronized_by_option():
    return sequential(
        "adam",
        "binary_crossentropy",
        layers.Input((6, 6, 2)),
        layers.Conv2D(3, 3, use_bias=False),
        layers.BatchNormalization(),
        layers.Activation("tanh"),
        layers.AveragePooling2D(2),
        layers.Flatten(),
        layers.Dense(1, activation="sigmoid"),
        metrics=["accuracy", keras.metrics.AUC(name="auc")],
    )


@case(weighted)
def gradients_accumulated_by_replicas():
    optimizer = keras.optimizers.Adam(1e-2, gradient_accumulation_steps=3, global_clipnorm=0.3)
    return mlp(optimizer, metrics=["mae"])


@case(two_sides)
def compiled_by_xla():
    model = two_inputs_and_outputs()
    model.jit_compile = True
    return model


@case(weighted)
def accumulated_gradients():
    optimizer = keras.optimizers.Adam(
        1e-2,
        gradient_accumulation_steps=3,
        use_ema=True,
        ema_momentum=0.7,
        ema_overwrite_frequency=5,
        global_clipnorm=0.3,
        weight_decay=1e-2,
    )
    return mlp(optimizer)


def with_bad_value(examples):
    x, y, weights, _ = weighted(examples)
    x[40:41] = np.nan  # not in the validation, which is shorter
    return x, y, weights, None


@case(weighted, epochs=7)
def with_callbacks():
    return mlp(keras.optimizers.Adam(0.05), metrics=["mae"])


@case(with_bad_value)
def bad_value():
    return with_callbacks()


@case(weighted, precision="mixed_float16", as_fit=False)
def scaled_loss():
    """Gradients overflow in the first steps, until the scale is small enough."""
    optimizer = keras.optimizers.SGD(1e-3, momentum=0.9)
    scaling = {"initial_scale": 2.0**22, "dynamic_growth_steps": 7}
    return mlp(keras.optimizers.LossScaleOptimizer(optimizer, **scaling))


class Own(keras.Model):
    """Layers, losses and metrics of its own."""

    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(8, activation="tanh")
        self.cells = [layers.Dense(3), layers.Dense(3)]
        self.out = layers.Dense(1)
        self.size = keras.metrics.Mean(name="size")
        self.penalties = [keras.losses.MeanSquaredError(), keras.losses.Huber(reduction="sum")]

    def call(self, x, training=False):
        hidden = self.hidden(x)
        for cell in self.cells:
            hidden = cell(hidden)
        self.add_loss(0.1 * tf.reduce_mean(tf.square(hidden)))
        for penalty in self.penalties:
            self.add_loss(0.1 * penalty(tf.zeros_like(hidden), hidden))
        return self.out(hidden)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        return loss + 0.1 * tf.reduce_mean(tf.abs(y_pred))

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Return a number of the last batch besides the metrics."""
        metrics = super().compute_metrics(x, y, y_pred, sample_weight)
        return {**metrics, "spread": tf.reduce_mean(tf.abs(y_pred))}


@case(weighted)
def subclassed():
    model = Own()
    model.compile(keras.optimizers.Adam(1e-2), "mse", metrics=["mae"])
    return model


def noise_and_samples(examples):
    random = np.random.default_rng(examples)
    return random.normal(size=(examples, 4)), random.normal(size=(examples, 3)) + 1, None, None


class Adversarial(keras.Model):
    """Steps of its own, two optimizers, layers that the first step builds, and no ``call()``."""

    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential([layers.Dense(8, "tanh"), layers.Dense(3)])
        self.discriminator = keras.Sequential([layers.Dense(8, "tanh"), layers.Dense(1)])
        self.tracker = keras.metrics.Mean(name="generator_loss")

    def compile(self, optimizers, loss_fn):
        super().compile()
        self.optimizers = optimizers
        self.loss_fn = loss_fn

    @property
    def metrics(self):
        return [self.tracker]

    def generator_loss(self, noise, training):
        judged = self.discriminator(self.generator(noise, training=training), training=training)
        return self.loss_fn(tf.zeros_like(judged), judged)

    def train_step(self, data):
        noise, real = data[:2]
        both = tf.concat([self.generator(noise, training=True), real], 0)
        labels = tf.repeat([1.0, 0.0], tf.shape(noise)[0])[:, tf.newaxis]
        with tf.GradientTape() as tape:
            loss = self.loss_fn(labels, self.discriminator(both, training=True))
        self.learn("discriminator", tape, loss)
        with tf.GradientTape() as tape:
            generator_loss = self.generator_loss(noise, training=True)
        self.learn("generator", tape, generator_loss)
        self.tracker.update_state(generator_loss)
        return {"generator_loss": self.tracker.result(), "discriminator_loss": loss}

    def learn(self, part, tape, loss):
        weights = getattr(self, part).trainable_weights
        gradients = tape.gradient(loss, weights)
        self.optimizers[part].apply_gradients(zip(gradients, weights, strict=True))

    def test_step(self, data):
        self.tracker.update_state(self.generator_loss(data[0], training=False))
        return {"generator_loss": self.tracker.result()}


@case(noise_and_samples)
def adversarial():
    model = Adversarial()
    optimizers = {
        "generator": keras.optimizers.SGD(0.05, momentum=0.9, use_ema=True, ema_momentum=0.8),
        "discriminator": keras.optimizers.Adam(1e-2, global_clipnorm=0.1),
    }
    model.compile(optimizers, keras.losses.BinaryCrossentropy(from_logits=True))
    return model


class Noise(layers.Layer):
    """Draws without a generator of its own."""

    def call(self, x, training=False):
        noise = keras.random.normal(keras.ops.shape(x), stddev=0.1, dtype=x.dtype)
        return x + noise if training else x


class Positions(layers.Layer):
    """Adds an embedding that all rows of a batch share."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(5, 4)

    def call(self, x):
        return x + self.embedding(keras.ops.arange(5))


@case(pictures)
def augmented_pictures():
    augmentation = layers.RandomFlip("horizontal"), layers.RandomTranslation(0.2, 0.2)
    convolution = layers.Conv2D(4, 3, activation="tanh"), layers.SpatialDropout2D(0.3), Noise()
    head = layers.Flatten(), layers.Dropout(0.4), layers.Dense(2, activation="softmax")
    return sequential(
        keras.optimizers.Adam(1e-2),
        "sparse_categorical_crossentropy",
        *(layers.Input((6, 6, 2)), *augmentation, layers.GaussianNoise(0.1), *convolution, *head),
        metrics=["accuracy"],
    )


@case(sequences)
def dropout_in_sequences():
    x = layers.Input((5, 3))
    hidden = layers.TimeDistributed(layers.Dropout(0.2))(layers.Dense(4, activation="tanh")(x))
    hidden = Positions()(hidden)
    hidden += layers.MultiHeadAttention(2, 3, dropout=0.2)(hidden, hidden)
    hidden = layers.LSTM(3, return_sequences=True, dropout=0.2, recurrent_dropout=0.2)(hidden)
    model = keras.Model(x, layers.Dense(1)(hidden))
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    return model


class SparseStep(keras.Sequential):
    """A step of its own that differentiates an embedding."""

    def train_step(self, data):
        x, y = data[:2]
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x, y, predicted)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply(gradients, self.trainable_weights)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return self.compute_metrics(x, y, predicted)


@case(words)
def embedding_in_a_step_of_its_own():
    hidden = layers.Embedding(9, 4, mask_zero=True), layers.Dense(3, activation="softmax")
    model = SparseStep([layers.Input((5,), dtype="int32"), *hidden])
    optimizer = keras.optimizers.Adam(1e-2, global_clipnorm=0.1)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def squared_errors(model, data, global_batch_size):
    """Train on a replica's rows by hand, with the loss that `mse` is on one replica."""
    x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
    with tf.GradientTape() as tape:
        predicted = model(x, training=True)
        errors = tf.reduce_mean(tf.square(y - tf.cast(predicted, y.dtype)), -1)
        loss = tf.nn.compute_average_loss(errors, weights, global_batch_size)
        if model.losses:
            loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
        scaled = model.optimizer.scale_loss(loss)
    gradients = tape.gradient(scaled, model.trainable_variables)
    model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    model.compute_metrics(x, y, predicted, weights)
    return loss


@case(weighted, train_step=squared_errors)
def gradient_tape():
    return sequential(
        keras.optimizers.Adam(1e-2, global_clipnorm=0.3),
        "mse",
        layers.Input((6,)),
        layers.Dense(8, kernel_regularizer="l2", use_bias=False),
        layers.BatchNormalization(synchronized=True),
        layers.Activation("tanh"),
        layers.Dense(1, bias_regularizer="l2"),
        metrics=["mae"],
        weighted_metrics=["mae"],
    )


@case(weighted, precision="mixed_float16", as_fit=False, train_step=squared_errors)
def gradient_tape_with_scaled_loss():
    return scaled_loss()


def embedded_words(examples):
    x, _, _, _ = words(examples)
    return x, (x.sum(1, keepdims=True) % 3).astype(float), None, None


@case(embedded_words, train_step=squared_errors)
def gradient_tape_of_an_embedding():
    hidden = layers.Embedding(9, 4), layers.Flatten(), layers.Dense(1)
    return sequential("adam", "mse", layers.Input((5,), dtype="int32"), *hidden)


class OldStyle(keras.Sequential):
    """A loss of its own, written for Keras before 3.3."""

    def compute_loss(self, x, y, y_pred, sample_weight):
        return tf.reduce_mean(tf.abs(y - y_pred))


@case(weighted, as_fit=False)  # `fit` of this Keras calls it with one argument more
def loss_of_its_own():
    model = OldStyle([layers.Input((6,)), layers.Dense(1)])
    model.compile(keras.optimizers.Adam(1e-2), metrics=["mae"])
    return model


@case(weighted)
def scheduled():
    rates = keras.optimizers.schedules.ExponentialDecay(0.1, 5, 0.8)
    model = mlp(keras.optimizers.Lion(rates))
    model.layers[-1].kernel.constraint = keras.constraints.NonNeg()
    return model


@case(weighted_steps)
def attention_with_weights_of_steps():
    x = layers.Input((5, 3))
    hidden = layers.Dense(4)(layers.Masking()(x))
    hidden = layers.Add()([hidden, layers.MultiHeadAttention(2, 3)(hidden, hidden)])
    hidden = layers.LSTM(3, return_sequences=True)(layers.LayerNormalization()(hidden))
    model = keras.Model(x, layers.TimeDistributed(layers.Dense(1))(hidden))
    loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    model.compile(keras.optimizers.RMSprop(clipnorm=0.3), loss, weighted_metrics=["mae"])
    return model


@case(pairs)
def shared_layers():
    embed = keras.Sequential([layers.Input((6,)), layers.Dense(3, activation="tanh")])
    sides = [layers.Input((6,)), layers.Input((6,))]
    distance = layers.Lambda(lambda pair: (pair[0] - pair[1]) ** 2)([embed(side) for side in sides])
    model = keras.Model(sides, layers.Dense(1, activation="sigmoid")(distance))

    def contrastive(y, predicted):
        y = keras.ops.cast(y, predicted.dtype)
        return keras.ops.mean((1 - y) * predicted**2 + y * (1 - predicted) ** 2)

    model.compile("rmsprop", contrastive, metrics=["accuracy"])
    return model


@case(one_hot_classes)
def metrics_of_several_values():
    return sequential(
        keras.optimizers.Adam(1e-2),
        "categorical_crossentropy",
        layers.Input((6,)),
        layers.Dense(3, activation="softmax"),
        metrics=[keras.metrics.F1Score(name="f1"), keras.metrics.Recall(class_id=1, name="recall")],
    )
