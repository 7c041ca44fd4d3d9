"""In the manner of TensorFlow's tutorial "Multi-worker training with Keras": its main.py."""

import json
import os
import pathlib

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(12)

per_worker_batch_size = 16
tf_config = json.loads(os.environ["TF_CONFIG"])
cluster = tf_config["cluster"]
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
    return task_type == "chief" or is_first


strategy = tf.distribute.MultiWorkerMirroredStrategy()
global_batch_size = per_worker_batch_size * num_workers
multi_worker_dataset = mnist_dataset(global_batch_size)

with strategy.scope():
    multi_worker_model = build_and_compile_cnn_model()

multi_worker_model.fit(multi_worker_dataset, epochs=2, steps_per_epoch=5)
loss, accuracy = multi_worker_model.evaluate(mnist_dataset(40), steps=4)
print("Loss:", loss)
print("Accuracy:", accuracy)

task_type, task_id = strategy.cluster_resolver.task_type, strategy.cluster_resolver.task_id
is_chief = _is_chief(task_type, task_id)
folder = pathlib.Path("." if is_chief else f"workertemp_{task_type}_{task_id}")
tf.io.gfile.makedirs(folder)
multi_worker_model.save(folder / "model.keras")
loaded = keras.models.load_model(folder / "model.keras")
print("Loss when loaded:", loaded.evaluate(mnist_dataset(40), steps=4)[0])

checkpoint = tf.train.Checkpoint(model=multi_worker_model)
manager = tf.train.CheckpointManager(checkpoint, directory=str(folder / "ckpt"), max_to_keep=1)
manager.save()
before = multi_worker_model.get_weights()
multi_worker_model.set_weights([0 * value for value in before])
checkpoint.restore(tf.train.latest_checkpoint(str(folder / "ckpt"))).expect_partial()
after = multi_worker_model.get_weights()
print("Restored:", int(all(map(np.array_equal, before, after))))
if not is_chief:
    tf.io.gfile.rmtree(str(folder))
