"""A script of tf_keras; FAULT is ``SIGNAL@EPOCH@BATCH``, after which its worker gets the signal."""

import json
import os
import pathlib

import numpy as np
import tensorflow as tf

keras = tf.keras
task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
fault = [int(part) for part in os.environ["FAULT"].split("@")] if "FAULT" in os.environ else []
marker = pathlib.Path("failed").absolute()
folder = pathlib.Path("files", task)
folder.mkdir(parents=True, exist_ok=True)
os.chdir(folder)


class Fault(keras.callbacks.Callback):
    epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if task == "worker" and [self.epoch, batch] == fault[1:] and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), fault[0])


x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
model = keras.Sequential([keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(
    x,
    x.sum(1),
    batch_size=16,
    epochs=3,
    shuffle=False,
    verbose=0,
    callbacks=[
        keras.callbacks.ModelCheckpoint("best"),
        keras.callbacks.CSVLogger("log.csv"),
        Fault(),
    ],
)
model.save("model.h5")
print("epochs", len(history.history["loss"]))
print("loss", history.history["loss"][-1])
print(type(model).__module__, "on", tf.distribute.get_strategy().num_replicas_in_sync)
