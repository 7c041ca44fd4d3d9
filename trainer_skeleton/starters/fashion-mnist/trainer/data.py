"""The data: Fashion-MNIST, as `keras.datasets` downloads it."""

import keras
import numpy as np

from distlaunch_trainer import Arrays, downloading


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
    with downloading("Fashion-MNIST", "copy its four files into ~/.keras/datasets/fashion-mnist"):
        return keras.datasets.fashion_mnist.load_data()


def pixels(images: np.ndarray) -> np.ndarray:
    """Return images (n, 28, 28, 1) of numbers 0 ... 1."""
    return images[..., np.newaxis].astype("float32") / 255
