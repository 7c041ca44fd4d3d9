"""A train_step of the script's own, as in keras.io's "Customizing fit() with TensorFlow".

Then the other arguments and methods of training, with ten batches to predict, and with one; a
model whose first call is evaluate(), with a loss that is no mean over the rows; one
that predict() builds; and TensorFlow's variables of the script.
"""

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
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = keras.losses.mean_squared_error(y, y_pred)
            loss = tf.reduce_mean(loss)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply(gradients, self.trainable_weights)
        self.loss_metric.update_state(loss, sample_weight=tf.shape(x)[0])
        self.mae_metric.update_state(y, y_pred)
        return {"loss": self.loss_metric.result(), "error": self.mae_metric.result()}

    def test_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
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
history = model.fit(
    x, y, initial_epoch=3, epochs=6, validation_data=(x[:40], y[:40]), validation_freq=2
).history
print("Epochs:", len(history["loss"]))
print("Errors of the step:", sum(history["error"]))
print("Validations:", len(history["val_loss"]))
print("Loss of a batch:", model.train_on_batch(x[:9], y[:9], return_dict=True)["loss"])
print("Error of a batch:", model.test_on_batch(x, y, return_dict=True)["mae"])
print("Predictions:", float(np.square(model.predict(x, batch_size=10)).sum()))
generated = model.predict((x[start : start + 9],) for start in range(0, 27, 9))
print("Predicted rows:", len(generated))
print("Sum of them:", float(generated.sum()))
print("First predictions:", float(model.predict(x[:5]).sum() + model.predict_on_batch(x[:5]).sum()))
model.save("model.keras")


class Compiled(keras.Model):
    def train_step(self, data):
        return super().train_step(data)


def spread(y_true, y_pred):  # of the whole batch
    return keras.ops.var(y_true - y_pred)


inputs = keras.Input(shape=(32,))
compiled = Compiled(inputs, keras.layers.Dense(1)(inputs))
compiled.compile("sgd", spread, metrics=["mae"])
for name, value in compiled.evaluate(x, y, return_dict=True).items():
    print(f"First {name}:", value)
print("Error after it:", compiled.fit(x, y, epochs=2, batch_size=16).history["mae"][-1])


class Largest(keras.Model):
    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return {**super().compute_metrics(x, y, y_pred), "largest": keras.ops.max(y_pred)}


class Reading(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        accumulated.extend(np.square(each).sum() for each in self.model.optimizer.variables)


accumulated = []
largest = Largest(inputs, keras.layers.Dense(1)(inputs))
largest.compile(keras.optimizers.Adam(gradient_accumulation_steps=4), "mse")
history = largest.fit(x, y, batch_size=16, callbacks=[Reading()]).history
print("Accumulating:", history["loss"][-1])
print("Read by a hook:", sum(accumulated))

late = keras.Sequential([keras.layers.Dense(1)])
print("Untrained:", float(np.square(late.predict(x[:5])).sum()))
late.compile("sgd", "mse")
print("Trained:", late.fit(x, y, batch_size=16).history["loss"][-1])

slopes = tf.Variable(tf.ones(2))
slopes[0].assign(3.0)
with tf.GradientTape() as tape:
    error = tf.reduce_sum(slopes**2)
keras.optimizers.SGD(0.1).apply([tape.gradient(error, slopes)], [slopes])
print("Slopes:", float(tf.reduce_sum(slopes)))
