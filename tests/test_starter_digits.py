"""The data of the starter `digits` is scikit-learn's, in files of uneven sizes."""

from __future__ import annotations

import hashlib

import pytest
import tensorflow as tf

from distlaunch.resources import skeleton

DIGITS = skeleton() / "starters/digits"

# Printed by tools/make_digits.py from sklearn.datasets.load_digits: each image's 64 bytes and its
# label, sorted.
SHA256 = "f67d6a29d0e1f70e7f0cd9dcf25816b694881f4b8f27f5cc1db59551f0499fb8"

COUNTS = {
    "train-00000-of-00005": 401,
    "train-00001-of-00005": 97,
    "train-00002-of-00005": 523,
    "train-00003-of-00005": 211,
    "train-00004-of-00005": 205,
    "validation-00000-of-00002": 229,
    "validation-00001-of-00002": 131,
}


FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def image_and_label(record: bytes) -> bytes:
    example = tf.io.parse_single_example(record, FEATURES)
    return example["image"].numpy() + bytes([example["label"].numpy()])


@pytest.fixture(scope="module")
def files() -> dict[str, list[bytes]]:
    folder = DIGITS / "data"
    return {
        path.stem: [
            image_and_label(record)
            for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
        ]
        for path in sorted(folder.glob("*.tfrecord"))
    }


def test_every_file_has_its_number_of_records_and_every_digit(files):
    assert {name: len(content) for name, content in files.items()} == COUNTS
    for content in files.values():
        assert {record[-1] for record in content} == set(range(10))


def test_images_are_those_of_scikit_learn(files):
    digits = sorted(record for content in files.values() for record in content)
    assert hashlib.sha256(b"".join(digits)).hexdigest() == SHA256


def test_licence_is_beside_the_data():
    text = (DIGITS / "data" / "ATTRIBUTION.md").read_text(encoding="utf-8")
    assert "CC BY 4.0" in text
    assert "Alpaydin" in text
