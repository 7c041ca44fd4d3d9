"""The data: `cassava` of TensorFlow Datasets, photos of leaves with one of five conditions."""

import os

import keras
import tensorflow as tf

from distlaunch_trainer import Tfds

# Where the prepared dataset is: "" for ~/tensorflow_datasets; in the cloud "gs://my-bucket/tfds".
# What is not there yet is downloaded and prepared by the chief.
DATA_DIR = os.environ.get("TFDS_DATA_DIR") or None

# Height and width that photos are resized to.
IMAGE_SIZE = int(os.environ.get("IMAGE_SIZE", "224"))


def training() -> Tfds:
    """Return the examples to train on."""
    return Tfds("cassava", "train", data_dir=DATA_DIR, map=resize)


def validation() -> Tfds:
    """Return the examples to validate on after each epoch."""
    return Tfds("cassava", "validation", data_dir=DATA_DIR, map=resize)


def test() -> Tfds:
    """Return the examples that neither training nor validation sees."""
    return Tfds("cassava", "test", data_dir=DATA_DIR, map=resize)


def resize(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a photo of the model's size, with the colours that ResNet50 takes, and its label."""
    image = tf.image.resize(image, (IMAGE_SIZE, IMAGE_SIZE))
    return keras.applications.resnet50.preprocess_input(image), label
