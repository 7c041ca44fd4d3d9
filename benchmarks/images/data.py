"""The images in memory or in files, by the variable SOURCE; they lie in the folder DATA."""

import os
from pathlib import Path

import numpy as np
import tensorflow as tf

from distlaunch_trainer import Arrays, Records

FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def training() -> Arrays | Records:
    """Return the examples to train on."""
    folder = Path(os.environ["DATA"])
    if os.environ["SOURCE"] == "jpeg":
        return Records(f"{folder}/*.jpeg.tfrecord", decode)
    if os.environ["SOURCE"] == "colors":
        return Arrays(*colors())
    if os.environ["SOURCE"] == "records":
        return Records(f"{folder}/*.tfrecord", parse_batch=parse_batch)
    if os.environ["SOURCE"] == "single records":
        return Records(f"{folder}/*.tfrecord", parse)
    with np.load(folder / "images.npz") as data:
        return Arrays(data["x"] / np.float32(255), data["y"])


def colors() -> tuple[np.ndarray, np.ndarray]:
    """Return 320 images of 64 x 64 in color, and their labels."""
    generator = np.random.default_rng(0)
    return generator.random((320, 64, 64, 3), np.float32), generator.integers(0, 10, 320)


def decode(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Turn a serialized JPEG into 224 x 224 pixels at random, maybe mirrored, and its label."""
    example = tf.io.parse_single_example(record, FEATURES)
    image = tf.io.decode_jpeg(example["image"], channels=3)
    image = tf.image.random_crop(image, (224, 224, 3))
    image = tf.image.random_flip_left_right(image)
    return tf.cast(image, tf.float32) / 255, example["label"]


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Turn a serialized example into an image and its label."""
    example = tf.io.parse_single_example(record, FEATURES)
    pixels = tf.io.decode_raw(example["image"], tf.uint8)
    return tf.reshape(tf.cast(pixels, tf.float32) / 255, (28, 28)), example["label"]


def parse_batch(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Turn serialized examples into images and labels."""
    examples = tf.io.parse_example(records, FEATURES)
    pixels = tf.io.decode_raw(examples["image"], tf.uint8)
    return tf.reshape(tf.cast(pixels, tf.float32) / 255, (-1, 28, 28)), examples["label"]
