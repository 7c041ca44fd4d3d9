"""Records: how they are parsed, which is bad, and that they are read ahead."""

from __future__ import annotations

import re

import pytest
import tensorflow as tf

from distlaunch_trainer import Records
from distlaunch_trainer.errors import DataError, ModelError
from distlaunch_trainer.input.order.pipeline import Pipeline
from distlaunch_trainer.input.order.plan import BatchPlan
from distlaunch_trainer.input.records import records
from distlaunch_trainer.task import explain

from ...conftest import write_records  # noqa: TID252


@pytest.fixture
def _not_held(monkeypatch):
    """Read records as data that do not fit into memory."""
    monkeypatch.setattr(records, "_HELD_BYTES", 0)


# Functions whose source AutoGraph does not find.
WITHOUT_SOURCE = """
def numbers(records):
    return tf.strings.to_number(tf.strings.split(records))

def branching(record):
    return tf.zeros([]) if record == b"" else tf.ones([])
"""


def test_functions_that_autograph_cannot_convert(cluster, tmp_path):
    functions = {"tf": tf}
    exec(WITHOUT_SOURCE, functions)  # noqa: S102
    write_records(tmp_path / "a", [b" ".join([b"7"] * n) for n in range(1, 6)])
    options = {"parse_batch": functions["numbers"]}, {"parse": functions["branching"]}
    ragged, branching = (
        Pipeline(Records(f"{tmp_path}/a", **how).open(cluster, str(tmp_path)), plan)
        for how, plan in zip(options, [BatchPlan(5, 5)] * 2, strict=True)
    )
    (batch, *_) = next(iter(ragged.dataset(range(1), 0, 1)))
    assert batch.to_list() == [[7.0] * n for n in range(1, 6)]
    message = "^parse failed: Using a symbolic .* is not allowed: use TensorFlow's operations, or"
    with pytest.raises(ModelError, match=message):
        explain.from_user("parse", lambda: branching.dataset(range(1)))


@pytest.mark.parametrize("batched", [False, True])
def test_the_first_bad_record_is_located(cluster, tmp_path, batched):
    write_records(tmp_path / "a", [b"\x01\x02"] * 900)
    write_records(tmp_path / "b", [*[b"\x01\x02"] * 700, b"\x01", *[b"\x01\x02"] * 10])
    calls = []

    def parse(record):
        if tf.executing_eagerly():
            calls.append(record)
        return tf.reshape(tf.io.decode_raw(record, tf.uint8), [-1, 2])

    how = {"parse_batch": parse} if batched else {"parse": parse}
    items = Records(f"{tmp_path}/[ab]", **how).open(cluster, str(tmp_path))
    pipeline = Pipeline(items, BatchPlan(items.examples, 10))
    problem = pipeline.find_bad_record(range(1))
    assert problem.startswith(f"parse failed on record 700 of {tmp_path}/b: ")
    assert len(calls) == 1  # the others are parsed by a compiled function


def test_a_damaged_record_is_located(cluster, tmp_path):
    write_records(tmp_path / "a", [bytes(100)] * 50)
    items = Records(f"{tmp_path}/a", parse=tf.identity).open(cluster, str(tmp_path))
    content = bytearray((tmp_path / "a").read_bytes())
    content[116 * 20 + 50] ^= 1
    (tmp_path / "a").write_bytes(content)
    pipeline = Pipeline(items, BatchPlan(50, 10))
    expected = f"{tmp_path}/a is damaged at record 20 (4 records after byte 1856): "
    assert pipeline.find_bad_record(range(1)).startswith(expected)
    with pytest.raises(DataError, match=f"^{re.escape(expected)}"):
        pipeline.dataset(range(1))


@pytest.mark.usefixtures("_not_held")
def test_each_replica_reads_several_ranges_at_once_and_ahead(cluster, tmp_path):
    """By the graph: ahead are the ranges of a replica, its batches, and the batches of all."""
    write_records(tmp_path / "a", [bytes(8)] * 480)
    items = Records(f"{tmp_path}/a", parse=tf.identity).open(cluster, str(tmp_path))
    dataset = Pipeline(items, BatchPlan(480, 48, 2)).dataset(range(2))
    graph = tf.compat.v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())
    inner = [node.op for function in graph.library.function for node in function.node_def]
    assert [node.op for node in graph.node].count("PrefetchDataset") == 2 + 1
    assert inner.count("PrefetchDataset") == 2
    assert inner.count("ParallelInterleaveDatasetV4") == 2
