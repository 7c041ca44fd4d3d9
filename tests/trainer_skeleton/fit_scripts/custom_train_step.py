"""A train_step of the script's own, as in keras.io's "Customizing fit() with TensorFlow"."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(5)


@keras.saving.register_keras_serializable()
class CustomModel(keras.Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.loss_metric = keras.metrics.Mean(name="loss")
        self.mae_metric = keras.metrics.MeanAbsoluteError(name="mae")

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = keras.losses.mean_squared_error(y, y_pred)
            loss = tf.reduce_mean(loss)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply(gradients, self.trainable_weights)
        self.loss_metric.update_state(loss, sample_weight=tf.shape(x)[0])
        self.mae_metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}

    def test_step(self, data):
        x, y = data
        y_pred = self(x, training=False)
        loss = tf.reduce_mean(keras.losses.mean_squared_error(y, y_pred))
        self.loss_metric.update_state(loss, sample_weight=tf.shape(x)[0])
        self.mae_metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}

    @property
    def metrics(self):
        return [self.loss_metric, self.mae_metric]


inputs = keras.Input(shape=(32,))
hidden = keras.layers.Dense(8, activation="tanh")(inputs)
outputs = keras.layers.Dense(1)(hidden)
model = CustomModel(inputs, outputs)
model.compile(optimizer="adam")

rng = np.random.default_rng(5)
x = rng.random((97, 32)).astype("float32")
y = x.sum(axis=1, keepdims=True) / 16 - 1
model.fit(x, y, epochs=3, batch_size=16)
for name, value in model.evaluate(x, y, return_dict=True).items():
    print(name, value)
model.save("model.keras")
