"""The script of TensorFlow's tutorial on multi-worker training with Keras, on images from a file.

https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras, with Keras 2 (tf_keras), as
`fit` of Keras 3 fails under this strategy. What is not the tutorial's: the number of epochs and
steps, the choice of a smaller model, the callback that takes the time at the end of an epoch, and
`finite`: a pass over the data ends the epoch, as in most scripts, where the tutorial's `repeated`
data have no end.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

BATCH_SIZE = 64


def mnist_dataset(batch_size: int, epoch: int | None) -> tf.data.Dataset:
    """Return batches of images: so many, or without an end."""
    with np.load(Path(os.environ["DATA"]) / "images.npz") as data:
        x_train, y_train = data["x"] / np.float32(255), data["y"].astype(np.int64)
    examples = tf.data.Dataset.from_tensor_slices((x_train, y_train))
    if epoch is None:
        return examples.shuffle(60000).repeat().batch(batch_size)
    return examples.shuffle(60000).batch(batch_size).take(epoch)


def tutorials() -> list[Any]:
    """Return the layers between the first and the last of the tutorial's model."""
    return [
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(128, activation="relu"),
    ]


def small() -> list[Any]:
    """Return the same of the smaller one."""
    return [
        tf.keras.layers.Conv2D(16, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
    ]


def build_and_compile_cnn_model() -> Any:
    """Return the tutorial's model, or the `small` one of model.py."""
    layers = [
        tf.keras.layers.InputLayer(input_shape=(28, 28)),
        tf.keras.layers.Reshape(target_shape=(28, 28, 1)),
        *(small() if os.environ["MODEL"] == "small" else tutorials()),
        tf.keras.layers.Dense(10),
    ]
    model = tf.keras.Sequential(layers)
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.SGD(learning_rate=0.001),
        metrics=["accuracy"],
    )
    return model


class Clock(tf.keras.callbacks.Callback):
    """Takes the time at the end of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_epoch_end(self, *_: Any) -> None:
        """Take it."""
        self.ends.append(time.perf_counter())


def main() -> None:
    """Train, and write when the epochs ended."""
    steps, epochs, result = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[4])
    epoch = steps if sys.argv[3] == "finite" else None
    workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    dataset = mnist_dataset(BATCH_SIZE * workers, epoch)
    with strategy.scope():
        model = build_and_compile_cnn_model()
    clock = Clock()
    given = {} if epoch else {"steps_per_epoch": steps}
    model.fit(dataset, epochs=epochs, callbacks=[clock], **given)
    result.write_text(json.dumps(clock.ends))


if __name__ == "__main__":
    main()
