"""The batches of a script's calls: in which order, how far ahead, and with which rows."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer.fit.open_data import Caller, open_data
from distlaunch_trainer.training_state import Progress

from ..conftest import task_of  # noqa: TID252


def opened(cluster, *arrays, steps=None, **options):
    caller = Caller(cluster, SimpleNamespace(warn=print), "fit()")
    return open_data(caller, *arrays, steps_per_epoch=steps, **options)


def read(reader, first=0, most=99, done=0):
    """Return the rows of an epoch, or of its first batches, as the loop reads them."""
    reader.begin(first, done)
    rows = []
    left = min(most, 99 if reader.steps is None else reader.steps - done)
    while len(rows) < left:
        batch, _, total = reader.iterator.get_next()
        if reader.may_end_early and reader.is_end(np.array([total]), first + len(rows)):
            break
        rows.append(batch.numpy().tolist())
    if most == 99:
        reader.end(done + len(rows))
    return rows


@pytest.mark.parametrize("steps", [None, 3])
@pytest.mark.parametrize("is_counted", [True, False])
def test_batches_are_read_from_a_position_as_if_all_before_had_been_read(
    cluster, is_counted, steps
):
    """Five batches, in an order of their own in each pass."""

    def make(position=(), *, begun=False):
        keras.utils.set_random_seed(1)
        data = tf.data.Dataset.range(20).shuffle(20)
        data = data if is_counted else data.filter(lambda _: True)
        data = opened(cluster, (data if steps is None else data.repeat(4)).batch(4), steps=steps)
        begun = {"on_epoch_begin": {}} if begun else {}
        return data.reader(cluster, Progress(position=list(position), begun=begun))

    undisturbed, stopped = make(), make()
    epochs = [read(undisturbed) for _ in range(4)]
    assert epochs[0] != epochs[1]
    assert [read(stopped) for _ in range(2)] == epochs[:2]
    between = make(stopped.position)
    assert [read(between) for _ in range(2)] == epochs[2:]
    read(stopped, most=2)
    within = make(stopped.position, begun=True)
    assert [read(within, done=2), read(within)] == [epochs[2][2:], epochs[3]]


def test_data_that_end_early_end_the_epoch_and_start_anew(cluster):
    data = tf.data.Dataset.range(5).filter(lambda _: True).batch(1)
    reader = opened(cluster, data, steps=3).reader(cluster)
    assert read(reader) == [[0], [1], [2]]
    with pytest.warns(UserWarning, match="the data had 2 batches for the 3 steps of an epoch"):
        assert read(reader) == [[3], [4]]
    assert read(reader) == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("data", "batches", "least"),
    [
        ((np.zeros((10, 1)), {"batch_size": 4}), 3, 2),
        ((tf.data.Dataset.range(10).batch(4).prefetch(1), {}), 3, 2),
        ((tf.data.Dataset.range(10).filter(lambda _: True).batch(4), {}), None, 0),
        ((tf.data.Dataset.range(10).batch(4, drop_remainder=True), {}), 2, 4),
    ],
)
def test_only_a_last_batch_may_leave_replicas_without_rows(data, batches, least):
    given, options = data
    task = task_of(0, tasks=3)
    opened_data = opened(task, given, **options)
    assert (opened_data.num_batches, opened_data.least_rows) == (batches, least)
    reader = opened_data.reader(task)
    reader.begin(0)
    expected = [step == 2 for step in range(3)] if least == 2 else [least == 0] * 3
    assert [reader.has_empty_replicas(step) for step in range(3)] == expected


def test_a_generator_is_read_ahead_as_in_one_process(cluster):
    """By the graph: a step in the thread that reads, before Keras's own prefetch."""
    parts = opened(cluster, (batch for batch in [(np.array([1, 2]),)] * 3)).parts.batches
    variant = tf.data.experimental.to_variant(parts)
    text = tf.raw_ops.DatasetToGraphV2(input_dataset=variant, external_state_policy=1).numpy()
    nodes = {node.op: node for node in tf.compat.v1.GraphDef.FromString(text).node}
    assert nodes["MapDataset"].attr["force_synchronous"].b
    assert "ParallelMapDatasetV2" not in nodes
    last = nodes["_Retval"].input[0].partition("/")[0]
    assert last == "PrefetchDataset"
