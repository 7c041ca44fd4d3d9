"""The model with its own training step: change it as you like."""

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("trainer")
class Classifier(keras.Model):
    """A classifier of images with its own steps and metrics, as for ``model.fit``."""

    def __init__(self, filters: int = 32, **options: Any) -> None:
        super().__init__(**options)
        self.filters = filters
        self.hidden = [
            keras.layers.Conv2D(filters, 3, activation="relu"),
            keras.layers.Conv2D(2 * filters, 3, activation="relu"),
            keras.layers.Flatten(),
        ]
        self.scores = keras.layers.Dense(10)
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor, for ``model.keras``."""
        return {**super().get_config(), "filters": self.filters}

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The metrics that the steps update; they are reset at each epoch's start."""
        return [self.loss_tracker, self.accuracy]

    def call(self, images: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Return a score of each digit."""
        for layer in self.hidden:
            images = layer(images, training=training)
        return self.scores(images)

    def train_step(self, data: Any) -> dict[str, Any]:
        """Train on a batch; return the metrics."""
        images, labels = data
        with tf.GradientTape() as tape:
            predicted = self(images, training=True)
            loss = mean_loss(labels, predicted)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return self.count(labels, predicted, loss)

    def test_step(self, data: Any) -> dict[str, Any]:
        """Evaluate a batch; return the metrics."""
        images, labels = data
        predicted = self(images, training=False)
        return self.count(labels, predicted, mean_loss(labels, predicted))

    def count(self, labels: tf.Tensor, predicted: tf.Tensor, loss: tf.Tensor) -> dict[str, Any]:
        """Update the metrics by a batch and return them."""
        self.loss_tracker.update_state(loss)
        self.accuracy.update_state(labels, predicted)
        return {metric.name: metric.result() for metric in self.metrics}


def mean_loss(labels: tf.Tensor, predicted: tf.Tensor) -> tf.Tensor:
    """Return the mean over the rows of a batch, as the trainer requires of a step's loss."""
    losses = keras.losses.sparse_categorical_crossentropy(labels, predicted, from_logits=True)
    return tf.reduce_mean(losses)


def create_model() -> keras.Model:
    """Return a compiled model; losses and metrics are its own."""
    model = Classifier()
    model.compile(optimizer=keras.optimizers.Adam(4e-3))
    return model


def callbacks() -> list[keras.callbacks.Callback]:
    """Return Keras callbacks; they run on every worker, with the same logs on all."""
    return []
