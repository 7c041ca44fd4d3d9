"""The model: convolutions with batch normalisation, and a training step to use in its place."""

import os
from typing import Any

import keras
import tensorflow as tf

# One loss per row: gradient_step() divides their sum by the global batch.
per_row_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


def create_model() -> keras.Model:
    """Return a compiled model; it is trained as compiled, on one worker or on many."""
    layers: list[keras.layers.Layer] = [keras.layers.Input((32, 32, 3))]
    for filters in (32, 64, 128):
        layers += [
            keras.layers.Conv2D(filters, 3, padding="same", use_bias=False),
            keras.layers.BatchNormalization(synchronized=True),  # statistics of all workers' rows
            keras.layers.ReLU(),
            keras.layers.MaxPooling2D(),
        ]
    layers += [
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dropout(0.3),
        keras.layers.Dense(10),
    ]
    model = keras.Sequential(layers)
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def gradient_step(model: keras.Model, data: Any, global_batch_size: tf.Tensor) -> tf.Tensor:
    """Train on the rows that this replica has of a batch; return its share of the loss."""
    images, labels = data
    with tf.GradientTape() as tape:
        predicted = model(images, training=True)
        losses = per_row_loss(labels, predicted)
        loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch_size)
        scaled = model.optimizer.scale_loss(loss)
    gradients = tape.gradient(scaled, model.trainable_variables)
    model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    model.compute_metrics(images, labels, predicted)
    return loss


# CUSTOM_LOOP=1 trains by gradient_step(), otherwise the compiled loss is used.
train_step = gradient_step if os.environ.get("CUSTOM_LOOP") else None


def callbacks() -> list[keras.callbacks.Callback]:
    """Return Keras callbacks; they run on every worker, with the same logs on all."""
    return []
