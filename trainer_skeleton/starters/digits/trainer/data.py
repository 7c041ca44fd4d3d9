"""The data: where the records are, and how one is parsed."""

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
    return Records(f"{DATA}/train-*.tfrecord", parse)


def validation() -> Records | None:
    """Return the examples to validate on after each epoch, or None."""
    return Records(f"{DATA}/validation-*.tfrecord", parse)


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Turn a serialized ``tf.train.Example`` into an image (8, 8, 1), 0 ... 1, and its label."""
    example = tf.io.parse_single_example(record, FEATURES)
    pixels = tf.io.decode_raw(example["image"], tf.uint8)
    image = tf.reshape(tf.cast(pixels, tf.float32) / 16.0, (8, 8, 1))
    return image, example["label"]
