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
    if os.environ["SOURCE"] == "records":
        return Records(f"{folder}/*.tfrecord", parse_batch=parse_batch)
    if os.environ["SOURCE"] == "single records":
        return Records(f"{folder}/*.tfrecord", parse)
    with np.load(folder / "images.npz") as data:
        return Arrays(data["x"] / np.float32(255), data["y"])


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
