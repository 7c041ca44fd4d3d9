"""Records: bad ones are located, and they are read ahead."""

from __future__ import annotations

import pytest
import tensorflow as tf

from distlaunch_trainer import Records
from distlaunch_trainer.pipeline import Order, Pipeline
from distlaunch_trainer.plan import BatchPlan


def write(path, records):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


@pytest.mark.parametrize("batched", [False, True])
def test_the_first_bad_record_is_located_in_batches(cluster, tmp_path, batched):
    write(tmp_path / "a", [b"\x01\x02"] * 900)
    write(tmp_path / "b", [*[b"\x01\x02"] * 700, b"\x01", *[b"\x01\x02"] * 10])
    calls = []

    def parse(record):
        if tf.executing_eagerly():
            calls.append(record)
        return tf.reshape(tf.io.decode_raw(record, tf.uint8), [-1, 2])

    how = {"parse_batch": parse} if batched else {"parse": parse}
    items = Records(f"{tmp_path}/[ab]", **how).open(cluster, str(tmp_path))
    pipeline = Pipeline(items, BatchPlan(items.examples, 10), Order())
    problem = pipeline.find_bad_record(range(1))
    assert problem.startswith(f"parse failed on record 700 of {tmp_path}/b: ")
    assert len(calls) <= 512  # the others are parsed by a compiled function


def test_a_damaged_record_is_located(cluster, tmp_path):
    write(tmp_path / "a", [bytes(100)] * 50)
    items = Records(f"{tmp_path}/a", parse=tf.identity).open(cluster, str(tmp_path))
    content = bytearray((tmp_path / "a").read_bytes())
    content[116 * 20 + 50] ^= 1
    (tmp_path / "a").write_bytes(content)
    problem = Pipeline(items, BatchPlan(50, 10), Order()).find_bad_record(range(1))
    assert problem.startswith(f"{tmp_path}/a is damaged at record 20 (4 records after byte 1856): ")


def test_each_replica_reads_several_ranges_at_once_and_ahead(cluster, tmp_path):
    """By the graph: ahead are the ranges of a replica, its batches, and the batches of all."""
    write(tmp_path / "a", [bytes(8)] * 480)
    items = Records(f"{tmp_path}/a", parse=tf.identity).open(cluster, str(tmp_path))
    dataset = Pipeline(items, BatchPlan(480, 48, 2), Order()).dataset(range(2))
    graph = tf.compat.v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())
    inner = [node.op for function in graph.library.function for node in function.node_def]
    assert [node.op for node in graph.node].count("PrefetchDataset") == 2 + 1
    assert inner.count("PrefetchDataset") == 2
    assert inner.count("ParallelInterleaveDatasetV4") == 2
