"""Small records in the folder DATA: 64 numbers and a label, a byte each."""

import os

import tensorflow as tf

from distlaunch_trainer import Records


def training() -> Records:
    """Return the examples to train on."""
    return Records(f"{os.environ['DATA']}/*.tfrecord", parse_batch=parse_batch)


def parse_batch(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Turn records into numbers and labels."""
    numbers = tf.io.decode_raw(records, tf.uint8, fixed_length=65)
    return tf.cast(numbers[:, :64], tf.float32) / 10, tf.cast(numbers[:, 64], tf.int64)
