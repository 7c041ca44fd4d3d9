"""The data: `cats_vs_dogs` of TensorFlow Datasets, photos of any size."""

import os

import keras
import tensorflow as tf

from distlaunch_trainer import Tfds

# Where the prepared dataset is: "" for ~/tensorflow_datasets; in the cloud "gs://my-bucket/tfds".
# What is not there yet is downloaded and prepared by the chief.
DATA_DIR = os.environ.get("TFDS_DATA_DIR") or None

# Height and width that photos are resized to: with pretrained weights 96, 128, 160, 192 or 224.
IMAGE_SIZE = int(os.environ.get("IMAGE_SIZE", "160"))


def training() -> Tfds:
    """Return the examples to train on."""
    return Tfds("cats_vs_dogs", "train[:80%]", data_dir=DATA_DIR, map=resize)


def validation() -> Tfds:
    """Return the examples to validate on after each epoch."""
    return Tfds("cats_vs_dogs", "train[80%:90%]", data_dir=DATA_DIR, map=resize)


def test() -> Tfds:
    """Return the examples that neither training nor validation sees."""
    return Tfds("cats_vs_dogs", "train[90%:]", data_dir=DATA_DIR, map=resize)


def resize(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a photo of the model's size, with numbers -1 ... 1, and 0.0 for a cat, 1.0 a dog."""
    image = tf.image.resize(image, (IMAGE_SIZE, IMAGE_SIZE))
    label = tf.cast(label[tf.newaxis], tf.float32)
    return keras.applications.mobilenet_v2.preprocess_input(image), label
