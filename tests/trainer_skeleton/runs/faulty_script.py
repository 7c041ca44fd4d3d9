"""A script of `fit` with every callback that writes, in a folder of its task; and a fault.

The environment variable FAULT is ``SIGNAL@EPOCH@BATCH``: the first worker sends itself the signal
after this batch, once in a job. Epochs and batches are numbered from 0.
"""

import json
import os
import pathlib

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(3)
keras.config.set_floatx("float64")

task = json.loads(os.environ["TF_CONFIG"])["task"] if "TF_CONFIG" in os.environ else {}
is_chief = task.get("type") != "worker"
fault = [int(part) for part in os.environ["FAULT"].split("@")] if "FAULT" in os.environ else []
marker = pathlib.Path("failed").absolute()
folder = pathlib.Path("files", "chief" if is_chief else "worker")
folder.mkdir(parents=True, exist_ok=True)
os.chdir(folder)


class Fault(keras.callbacks.Callback):
    epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        at = [self.epoch, batch]
        if not is_chief and at == fault[1:] and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), fault[0])

    def get_state(self):
        return {}

    def set_state(self, state):
        pass


rng = np.random.default_rng(3)
x = rng.normal(size=(81, 4))
y = np.tanh(x @ rng.normal(size=(4, 1)))
model = keras.Sequential(
    [
        keras.Input((4,)),
        layers.Dense(8, activation="tanh"),
        layers.BatchNormalization(synchronized=True),
        layers.Dense(1),
    ]
)
model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
history = model.fit(
    tf.data.Dataset.from_tensor_slices((x, y)).shuffle(81).batch(16),
    epochs=4,
    validation_data=(x[:20], y[:20]),
    callbacks=[
        keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True),
        keras.callbacks.CSVLogger("log.csv"),
        keras.callbacks.TensorBoard("logs"),
        keras.callbacks.BackupAndRestore("backup", delete_checkpoint=False),
        keras.callbacks.ReduceLROnPlateau("val_mae", factor=0.5, patience=1, min_delta=0.2),
        keras.callbacks.EarlyStopping(restore_best_weights=True, patience=10),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        Fault(),
    ],
)
print("Epochs:", len(history.epoch))
for name, values in history.history.items():
    print(f"Last {name}:", values[-1])
if history.epoch:
    keras.models.load_model("best.keras").evaluate(x, y)
model.save_weights("model.weights.h5")
model.export("exported")
if is_chief:
    model.save("model.keras")
