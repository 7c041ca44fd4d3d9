"""The data of a worker: all examples in each pass, in an order of its own."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.data_setup import load_data
from distlaunch_trainer.input.examples.arrays import Arrays
from distlaunch_trainer.input.records.records import Records
from distlaunch_trainer.options import Settings
from distlaunch_trainer.parameter_server.worker_data import worker_batches
from distlaunch_trainer.report.report import Report

from ..conftest import write_records  # noqa: TID252

EXAMPLES, BATCH = 690, 100
STEPS = 7


def numbers(shuffle, training):
    """The numbers of the examples of two passes, by batches, as a worker reads them."""
    settings = Settings(batch_size=BATCH, shuffle=shuffle)
    cluster = Cluster(Role(), tf.distribute.get_strategy())
    report = Report(Role(), "")
    loaded = load_data(
        settings, cluster, "", report, start=None, training=training, validation=lambda: None
    )
    batches = worker_batches(loaded.training, shuffles=shuffle > 0)
    if callable(batches):
        batches = batches()
    return [batch[0][0].numpy().ravel().tolist() for batch in batches.take(2 * STEPS)]


def arrays():
    return Arrays(np.arange(EXAMPLES), np.zeros(EXAMPLES))


def data_set():
    examples = np.arange(EXAMPLES), np.zeros(EXAMPLES)
    return tf.data.Dataset.from_tensor_slices(examples).batch(BATCH)


@pytest.mark.parametrize(("shuffle", "training"), [(1000, arrays), (0, arrays), (0, data_set)])
def test_each_pass_has_all_examples(shuffle, training):
    batches = numbers(shuffle, training)
    assert sorted(chain.from_iterable(batches)) == sorted(2 * list(range(EXAMPLES)))
    assert (batches[:STEPS] == batches[STEPS:]) == (not shuffle)


@pytest.mark.parametrize("shuffle", [1000, 0])
def test_workers_start_at_different_places(shuffle):
    assert len({str(numbers(shuffle, arrays)) for _ in range(8)}) > 1


def python_map():
    double = lambda x, y: (tf.numpy_function(lambda n: 2 * n, [x], tf.int64), y)  # noqa: E731
    return data_set().map(double)


def generator():
    while True:
        yield np.zeros((BATCH, 1)), np.zeros((BATCH, 1))


def records():
    write_records(Path("data.tfrecord"), [b"1"] * BATCH)

    def parse(record):
        number = tf.py_function(lambda text: float(text.numpy()), [record], tf.float32)
        return tf.reshape(number, [1]), 0

    return Records("data.tfrecord", parse)


@pytest.mark.parametrize("training", [python_map, generator, records])
def test_python_code_is_refused_as_workers_have_none(training, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = Settings(steps_per_epoch=3, batch_size=BATCH)
    cluster = Cluster(Role(), tf.distribute.get_strategy())
    options = {"start": None, "training": training, "validation": lambda: None}
    data = load_data(settings, cluster, str(Path()), Report(Role(), ""), **options).training
    for shuffles in (False, True):
        with pytest.raises(DataError, match="worker of parameter servers cannot run"):
            worker_batches(data, shuffles=shuffles)
