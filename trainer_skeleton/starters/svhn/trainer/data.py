"""The data: `svhn_cropped` of TensorFlow Datasets, 32 x 32 images of house numbers."""

import os

import tensorflow as tf

from distlaunch_trainer import Tfds

# Where the prepared dataset is: "" for ~/tensorflow_datasets; in the cloud "gs://my-bucket/tfds".
# What is not there yet is downloaded and prepared by the chief.
DATA_DIR = os.environ.get("TFDS_DATA_DIR") or None


def training() -> Tfds:
    """Return the examples to train on."""
    return Tfds("svhn_cropped", "train[:90%]", data_dir=DATA_DIR, map=scale)


def validation() -> Tfds:
    """Return the examples to validate on after each epoch."""
    return Tfds("svhn_cropped", "train[90%:]", data_dir=DATA_DIR, map=scale)


def test() -> Tfds:
    """Return the examples that neither training nor validation sees."""
    return Tfds("svhn_cropped", "test", data_dir=DATA_DIR, map=scale)


def scale(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return an image of numbers 0 ... 1, and its label."""
    return tf.cast(image, tf.float32) / 255, label
