"""The first rows of whatever `training()` may return."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer import Arrays, Records, first_batch
from distlaunch_trainer.errors import DataError

from ..conftest import write_records  # noqa: TID252

X = np.arange(24.0, dtype="float32").reshape(12, 2)
Y = X.sum(1)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, number):
        rows = slice(4 * number, 4 * number + 4)
        return X[rows], Y[rows]


def records(folder):
    write_records(folder / "x.tfrecord", [row.tobytes() for row in X])

    def parse(record):
        row = tf.reshape(tf.io.decode_raw(record, tf.float32), [2])
        return row, tf.reduce_sum(row)

    return Records(f"{folder}/*.tfrecord", parse)


def generator(_):
    while True:
        yield X[:4], Y[:4]


SOURCES = {
    "records": records,
    "arrays": lambda _: Arrays(X, Y),
    "weighted": lambda _: Arrays({"a": X}, Y, sample_weight=Y),
    "data set": lambda _: tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(12).batch(4),
    "endless": lambda _: tf.data.Dataset.from_tensor_slices((X, Y)).batch(4).repeat(),
    "PyDataset": lambda _: Batches(),
    "generator": generator,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_any_source_gives_one_batch_of_its_rows(kind, tmp_path, capfd):
    (batch,) = first_batch(lambda: SOURCES[kind](tmp_path), rows=3)
    x = batch[0]["a"] if kind == "weighted" else batch[0]
    assert x.shape == (3, 2)
    np.testing.assert_array_equal(np.sum(x, 1), batch[1])
    if kind != "data set":  # which shuffles itself
        np.testing.assert_array_equal(x, X[:3])
    assert len(batch) == 2 + (kind == "weighted")
    printed = capfd.readouterr()
    assert "warning" not in printed.out + printed.err


def test_ragged_text_of_fewer_rows_than_requested():
    words = tf.ragged.constant([["a", "b"], ["c"]])
    (batch,) = first_batch(lambda: Arrays(words, [0, 1]))
    assert batch[0].to_list() == [[b"a", b"b"], [b"c"]]


def test_unusable_data_are_refused_in_one_line():
    with pytest.raises(DataError, match=r"^training\(\) .* returned int: "):
        first_batch(lambda: 7)
