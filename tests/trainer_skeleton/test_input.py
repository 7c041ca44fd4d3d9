"""Data that `trainer/data.py` may give by mistake."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from trainer.distributed.cluster import Role, Team
from trainer.distributed.errors import DataError
from trainer.distributed.input import Arrays, Records

X = np.zeros((5, 2))


@pytest.fixture
def team() -> Team:
    return Team(Role(), tf.distribute.get_strategy())


def test_arrays_of_one_length(team):
    assert Arrays({"a": X, "b": X}, X[:, 0]).open(team, "").examples == 5


def test_arrays_of_several_lengths(team):
    with pytest.raises(DataError, match=r"^the arrays differ in length: \[4, 5\]: see trainer/"):
        Arrays(X, X[:4]).open(team, "")


def test_the_summary_records_each_file_of_the_data(team, tmp_path):
    paths = [tmp_path / f"{count}.tfrecord" for count in (2, 3)]
    for path, count in zip(paths, (2, 3), strict=True):
        with tf.io.TFRecordWriter(str(path)) as writer:
            for _ in range(count):
                writer.write(b"record")
    pattern = f"{tmp_path}/*.tfrecord"
    items = Records(pattern, parse=tf.identity).open(team, str(tmp_path))
    assert items.describe() == {
        "kind": "records",
        "pattern": pattern,
        "files": [
            {
                "path": str(path),
                "bytes": path.stat().st_size,
                "modified_ns": path.stat().st_mtime_ns,
                "examples": count,
            }
            for path, count in zip(paths, (2, 3), strict=True)
        ],
    }
    assert Arrays(X).open(team, "").describe() == {"kind": "arrays"}


@pytest.mark.parametrize("given", [{"x": [1, 2]}, {"x": X, "y": [1, 2, 3, 4, 5]}])
def test_lists_are_refused(given):
    with pytest.raises(DataError, match=r"is a list: give np.asarray\("):
        Arrays(**given)


def test_weights_without_targets_are_refused():
    with pytest.raises(DataError, match="need y"):
        Arrays(X, sample_weight=X[:, 0])


def test_one_way_to_parse():
    with pytest.raises(DataError, match="takes one of parse= and parse_batch="):
        Records("*")
    with pytest.raises(DataError, match="takes one of parse= and parse_batch="):
        Records("*", parse=lambda record: record, parse_batch=lambda records: records)
