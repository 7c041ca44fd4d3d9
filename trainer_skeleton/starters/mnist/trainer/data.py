"""The data: MNIST, as `keras.datasets` downloads it."""

import io
import os

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer import Arrays, downloading

# A copy of mnist.npz to read instead of downloading it, e.g. "gs://my-bucket/mnist.npz".
FILE = os.environ.get("MNIST_FILE", "")


def training() -> Arrays:
    """Return the examples to train on."""
    images, labels = load()[0]
    return Arrays(pixels(images), labels)


def validation() -> Arrays:
    """Return the examples to validate on after each epoch."""
    images, labels = load()[1]
    return Arrays(pixels(images), labels)


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return images of bytes and their labels, of the training and of the test data."""
    if not FILE:
        with downloading("MNIST", "set MNIST_FILE to a copy of mnist.npz"):
            return keras.datasets.mnist.load_data()
    with tf.io.gfile.GFile(FILE, "rb") as file, np.load(io.BytesIO(file.read())) as data:
        return (data["x_train"], data["y_train"]), (data["x_test"], data["y_test"])


def pixels(images: np.ndarray) -> np.ndarray:
    """Return images (n, 28, 28, 1) of numbers 0 ... 1."""
    return images[..., np.newaxis].astype("float32") / 255
