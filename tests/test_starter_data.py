"""The data of starters: scikit-learn's digits in uneven files, and sentences of three classes."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
import tensorflow as tf

from distlaunch.resources import skeleton

STARTERS = skeleton() / "starters"

# Printed by tools/make_digits.py from sklearn.datasets.load_digits: each image's 64 bytes and its
# label, sorted.
SHA256 = "f67d6a29d0e1f70e7f0cd9dcf25816b694881f4b8f27f5cc1db59551f0499fb8"
TRAIN, VALIDATION = (401, 97, 523, 211, 205), (229, 131)


def test_digits_are_those_of_scikit_learn_and_all_in_each_file():
    counts, digits = [], []
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in ("image", "label")}
    features["label"] = tf.io.FixedLenFeature([], tf.int64)
    for path in sorted((STARTERS / "digits/data").glob("*.tfrecord")):
        records = [*tf.data.TFRecordDataset(str(path)).as_numpy_iterator()]
        parsed = tf.io.parse_example(records, features)
        labels = parsed["label"].numpy().tolist()
        assert set(labels) == set(range(10)), path
        counts.append(len(labels))
        images = parsed["image"].numpy()
        digits += [image + bytes([label]) for image, label in zip(images, labels, strict=True)]
    assert tuple(counts) == TRAIN + VALIDATION
    assert hashlib.sha256(b"".join(sorted(digits))).hexdigest() == SHA256


def test_every_class_of_text_has_as_many_sentences_and_none_is_there_twice():
    sentences = set()
    for name, count in (("train", 1700), ("validation", 300)):
        text = (STARTERS / f"text/data/{name}.tsv").read_text(encoding="utf-8")
        header, *rows = [line.split("\t") for line in text.splitlines()]
        assert header == ["source", "text"]
        classes = Counter(source for source, _ in rows)
        assert classes == dict.fromkeys(("keras", "tensorflow", "google-cloud"), count)
        sentences |= {text for _, text in rows}
    assert len(sentences) == 6000


@pytest.mark.parametrize(
    ("starter", "words"),
    [("digits", ("CC BY 4.0", "Alpaydin")), ("text", ("Apache License 2.0",))],
)
def test_licence_is_beside_the_data(starter, words):
    text = (STARTERS / starter / "data/ATTRIBUTION.md").read_text(encoding="utf-8")
    assert all(word in text for word in words)
