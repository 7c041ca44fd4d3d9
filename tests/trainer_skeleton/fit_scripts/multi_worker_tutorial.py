"""In the manner of TensorFlow's tutorial "Multi-worker training with Keras": its main.py."""

import json
import os
import pathlib

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(12)

per_worker_batch_size = 16
tf_config = json.loads(os.environ.get("TF_CONFIG", "{}"))
cluster = tf_config.get("cluster", {"worker": [""]})
num_workers = sum(map(len, cluster.values()))


def mnist_dataset(batch_size):
    rng = np.random.default_rng(12)
    y_train = rng.integers(10, size=160)
    x_train = rng.integers(256, size=(160, 28, 28))
    x_train[np.arange(160), y_train] = 255
    x_train = x_train / np.float32(255)
    return (
        tf.data.Dataset.from_tensor_slices((x_train.astype("float32"), y_train))
        .shuffle(160)
        .repeat()
        .batch(batch_size)
    )


def build_and_compile_cnn_model():
    model = keras.Sequential(
        [
            keras.layers.InputLayer(shape=(28, 28)),
            keras.layers.Reshape(target_shape=(28, 28, 1)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate=0.001),
        metrics=["accuracy"],
    )
    return model


def _is_chief(task_type, task_id):
    is_first = task_type == "worker" and task_id == 0 and "chief" not in cluster
    return task_type is None or task_type == "chief" or is_first


strategy = tf.distribute.MultiWorkerMirroredStrategy()
global_batch_size = per_worker_batch_size * num_workers
multi_worker_dataset = mnist_dataset(global_batch_size)

with strategy.scope():
    multi_worker_model = build_and_compile_cnn_model()

multi_worker_model.fit(multi_worker_dataset, epochs=2, steps_per_epoch=5)
loss, accuracy = multi_worker_model.evaluate(mnist_dataset(40), steps=4)
print("Loss:", loss)
print("Accuracy:", accuracy)

task_type = strategy.cluster_resolver.task_type if tf_config else None
task_id = strategy.cluster_resolver.task_id if tf_config else None
is_chief = _is_chief(task_type, task_id)
folder = pathlib.Path("." if is_chief else f"workertemp_{task_type}_{task_id}")
folder.mkdir(exist_ok=True)
multi_worker_model.save(folder / "model.keras")
