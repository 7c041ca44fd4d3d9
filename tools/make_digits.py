"""Make the data of the starter `digits`: `python tools/make_digits.py`.

Needs scikit-learn, which has the images, and TensorFlow, which writes them. Run it by hand; what it
writes is committed, and it writes the same bytes every time.
"""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import tensorflow as tf
from sklearn.datasets import load_digits

FOLDER = Path(__file__).parent.parent / "trainer_skeleton" / "starters" / "digits" / "data"

# Records in each file: uneven, as real files are.
SPLITS = {"train": (401, 97, 523, 211, 205), "validation": (229, 131)}


def main() -> None:
    """Write the files and print what the tests hold them to."""
    digits = load_digits()
    images = [bytes(image.astype("uint8").ravel()) for image in digits.images]
    records = list(zip(images, map(int, digits.target), strict=True))
    print("sha256 of the sorted images, each with its label behind it:", digest(records))
    random.Random(0).shuffle(records)  # noqa: S311 - no secret
    FOLDER.mkdir(parents=True, exist_ok=True)
    for split, sizes in SPLITS.items():
        for index, size in enumerate(sizes):
            name = f"{split}-{index:05}-of-{len(sizes):05}.tfrecord"
            write(FOLDER / name, records[:size])
            del records[:size]


def write(path: Path, records: list[tuple[bytes, int]]) -> None:
    """Write one file."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for image, label in records:
            writer.write(example(image, label).SerializeToString(deterministic=True))


def example(image: bytes, label: int) -> tf.train.Example:
    """Return one record: 64 values of 0 to 16, and the digit that they show."""
    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features))


def digest(records: list[tuple[bytes, int]]) -> str:
    """Return a hash that does not know of an order."""
    return hashlib.sha256(b"".join(sorted(image + bytes([n]) for image, n in records))).hexdigest()


if __name__ == "__main__":
    main()
