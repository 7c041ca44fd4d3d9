"""Callbacks of every kind that Keras has."""

import pathlib

import keras
import numpy as np

keras.utils.set_random_seed(10)

rng = np.random.default_rng(10)
x = rng.normal(size=(101, 6)).astype("float32")
y = np.tanh(x @ rng.normal(size=(6, 1))).astype("float32")


class LossHistory(keras.callbacks.Callback):
    def on_train_begin(self, logs):
        self.losses = []

    def on_epoch_end(self, epoch, logs):
        self.losses.append(logs["loss"])


model = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(1)]
)
model.compile(optimizer=keras.optimizers.Adam(0.1), loss="mse")
history = LossHistory()
model.fit(
    x,
    y,
    batch_size=32,
    epochs=6,
    validation_split=0.25,
    callbacks=[
        keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True),
        keras.callbacks.ModelCheckpoint("weights-{epoch}.weights.h5", save_weights_only=True),
        keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau(factor=0.5, patience=1, min_delta=0.05),
        keras.callbacks.CSVLogger("log.csv"),
        keras.callbacks.TensorBoard("logs"),
        keras.callbacks.BackupAndRestore("backup"),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None),
        history,
    ],
)
print("First loss:", history.losses[0])
print("Last loss:", history.losses[-1])
print("Epochs:", len(history.losses))
print("Learning rate:", float(model.optimizer.learning_rate.numpy()))
best = keras.models.load_model("best.keras")
print("Best loss:", best.evaluate(x, y, verbose=0))
model.load_weights("weights-1.weights.h5")
print("Loss after an epoch:", model.evaluate(x, y, verbose=0))
print("Rows of the log:", len(pathlib.Path("log.csv").read_text().splitlines()))
best.save("model.keras")
