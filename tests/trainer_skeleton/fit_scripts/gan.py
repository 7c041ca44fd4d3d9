"""Two networks with an optimizer each, as in keras.io's "DCGAN"; it draws without a generator.

Six batches are no multiple of the steps per execution.
"""

import pathlib

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.backend.clear_session()
keras.utils.set_random_seed(6)


class GAN(keras.Model):
    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.d_loss_metric = keras.metrics.Mean(name="d_loss")
        self.g_loss_metric = keras.metrics.Mean(name="g_loss")

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile(steps_per_execution=4)
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn

    @property
    def metrics(self):
        return [self.d_loss_metric, self.g_loss_metric]

    def train_step(self, data):
        real = data
        rows = tf.shape(real)[0]
        noise = keras.random.normal((rows, 3))
        combined = tf.concat([self.generator(noise, training=True), real], axis=0)
        labels = tf.concat([tf.ones((rows, 1)), tf.zeros((rows, 1))], axis=0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(combined))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply_gradients(zip(tape.gradient(d_loss, weights), weights, strict=True))
        noise = keras.random.normal((rows, 3))
        with tf.GradientTape() as tape:
            predictions = self.discriminator(self.generator(noise, training=True))
            g_loss = self.loss_fn(tf.zeros((rows, 1)), predictions)
        weights = self.generator.trainable_weights
        self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, weights), weights, strict=True))
        self.d_loss_metric.update_state(d_loss, sample_weight=rows)
        self.g_loss_metric.update_state(g_loss, sample_weight=rows)
        return {"d_loss": self.d_loss_metric.result(), "g_loss": self.g_loss_metric.result()}


discriminator = keras.Sequential(
    [keras.Input((5,)), layers.Dense(8, activation="tanh"), layers.Dense(1)]
)
generator = keras.Sequential(
    [keras.Input((3,)), layers.Dense(8, activation="tanh"), layers.Dropout(0.2), layers.Dense(5)]
)
gan = GAN(discriminator, generator)
gan.compile(
    d_optimizer=keras.optimizers.Adam(1e-2),
    g_optimizer=keras.optimizers.Adam(1e-2, global_clipnorm=0.1),
    loss_fn=keras.losses.BinaryCrossentropy(from_logits=True),
)
rng = np.random.default_rng(6)
real = rng.normal(1, 1, (81, 5))
dataset = tf.data.Dataset.from_tensor_slices(real).shuffle(100)
dataset = dataset.map(lambda row: tf.cast(row, "float32"), num_parallel_calls=tf.data.AUTOTUNE)
history = gan.fit(dataset.batch(16), epochs=3)
print("Steps:", int(gan.d_optimizer.iterations.numpy()))
print("Discriminator loss:", history.history["d_loss"][-1])
print("Generator loss:", history.history["g_loss"][-1])
generator.save("model.keras")
print("Saved:", int(pathlib.Path("model.keras").is_file()))
