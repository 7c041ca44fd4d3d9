"""The model and its training step: change them as you like."""

from typing import Any

import keras
import tensorflow as tf

# One loss per row: train_step() divides their sum by the global batch.
per_row_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


def create_model() -> keras.Model:
    """Return a compiled model; the compiled loss and metrics are those of the validation."""
    regularizer = keras.regularizers.L2(1e-4)
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, activation="relu", kernel_regularizer=regularizer),
            keras.layers.Conv2D(64, 3, activation="relu", kernel_regularizer=regularizer),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(4e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def train_step(model: keras.Model, data: Any, global_batch_size: tf.Tensor) -> tf.Tensor:
    """Train on the rows that this replica has of a batch; return its share of the loss.

    Each replica differentiates its share. The gradients are summed over the replicas as the
    optimizer applies them, so all shares together have to be the loss of the global batch.
    """
    images, labels = data
    with tf.GradientTape() as tape:
        predicted = model(images, training=True)
        losses = per_row_loss(labels, predicted)
        # The sum divided by the rows of all replicas: those of this step, the last one has fewer.
        loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch_size)
        # The same on each replica, so divided by their number.
        loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
        # With --precision mixed_float16 the optimizer scales the loss, otherwise this is the loss.
        scaled = model.optimizer.scale_loss(loss)
    gradients = tape.gradient(scaled, model.trainable_variables)
    model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    model.compute_metrics(images, labels, predicted)
    return loss


def callbacks() -> list[keras.callbacks.Callback]:
    """Return Keras callbacks; they run on every worker, with the same logs on all."""
    return []
