"""The models that benchmarks train, by the variable MODEL; each takes 28 x 28 images.

`small` has 13,000 weights, and a step of 64 images takes some 5 ms on one core. `tutorial` is the
one of TensorFlow's tutorial on multi-worker training: 2.8 million weights, nearly all of them
between two layers, and 11 MB to exchange at each step of some 20 ms. A step of `wide` takes 50 ms
and more. `mlp` has two dense layers. `resnet` is ResNet50 for images of 64 x 64 in color, `jpeg` a
small network for 224 x 224, which waits for its data. With the variable STEP a training step with
`tf.GradientTape` minimizes the compiled loss.
"""

import os
from typing import Any

import keras
import tensorflow as tf

layers = keras.layers
LAYERS = {
    "tutorial": lambda: [
        layers.Conv2D(32, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(128, activation="relu"),
    ],
    "small": lambda: [
        layers.Conv2D(16, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
    ],
    "wide": lambda: [
        layers.Conv2D(48, 3, activation="relu"),
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
    ],
    "mlp": lambda: [layers.Flatten(), layers.Dense(128, activation="relu")],
}


def create_model() -> keras.Model:
    """Return a compiled model."""
    model = layered(os.environ["MODEL"])
    model.compile(
        optimizer=keras.optimizers.SGD(0.001),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def train_by_tape(model: keras.Model, data: Any, global_batch_size: tf.Tensor) -> tf.Tensor:
    """Train on a replica's rows; return its share of the loss."""
    images, labels = data
    with tf.GradientTape() as tape:
        predicted = model(images, training=True)
        losses = keras.losses.sparse_categorical_crossentropy(labels, predicted, from_logits=True)
        loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch_size)
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    model.compute_metrics(images, labels, predicted)
    return loss


train_step = train_by_tape if "STEP" in os.environ else None


def layered(name: str) -> keras.Model:
    """Return a model that is not compiled."""
    if name == "resnet":
        shape = (64, 64, 3)
        return keras.applications.ResNet50(
            weights=None, input_shape=shape, classes=10, classifier_activation=None
        )
    if name == "jpeg":
        hidden = layers.Conv2D(8, 8, strides=8, activation="relu"), layers.GlobalMaxPooling2D()
        return keras.Sequential([layers.Input((224, 224, 3)), *hidden, layers.Dense(10)])
    ends = layers.Input((28, 28)), layers.Reshape((28, 28, 1))
    return keras.Sequential([*ends, *LAYERS[name](), layers.Dense(10)])
