"""The data: where the records are, and how they are parsed."""

from pathlib import Path

import tensorflow as tf

from trainer.distributed.input import Records

# A folder beside the trainer; in the cloud "gs://my-bucket/digits" or "/gcs/my-bucket/digits".
DATA = f"{Path(__file__).resolve().parents[1]}/data"

FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def training() -> Records:
    """Return the examples to train on."""
    return Records(f"{DATA}/train-*.tfrecord", parse_batch=parse)


def validation() -> Records | None:
    """Return the examples to validate on after each epoch, or None."""
    return Records(f"{DATA}/validation-*.tfrecord", parse_batch=parse)


def parse(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Turn serialized ``tf.train.Example``s into images (n, 8, 8, 1), 0 ... 1, and their labels."""
    examples = tf.io.parse_example(records, FEATURES)
    pixels = tf.io.decode_raw(examples["image"], tf.uint8)
    images = tf.reshape(tf.cast(pixels, tf.float32) / 16.0, (-1, 8, 8, 1))
    return images, examples["label"]
