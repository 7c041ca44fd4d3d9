"""Arrays of every kind as batches, bad records, and what is copied to a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer import Arrays, Records
from distlaunch_trainer.errors import DataError
from distlaunch_trainer.pipeline import Order, Pipeline
from distlaunch_trainer.plan import Plan


def batches_of(source, cluster, steps, batch=4):
    items = source.open(cluster, "")
    pipeline = Pipeline(items, Plan(items.examples, batch), Order(seed=1, shuffle_buffer=20))
    iterator = iter(pipeline.dataset(range(1), 0, steps))
    return [next(iterator)[0] for _ in range(steps)]


def test_ragged_and_sparse_arrays_are_taken_by_rows(cluster):
    rows = [[n] * (n % 3 + 1) for n in range(10)]
    dense = np.zeros((10, 5))
    dense[range(10), np.arange(10) % 5] = range(10)
    x = {"tokens": tf.ragged.constant(rows), "words": tf.sparse.from_dense(dense)}
    seen = []
    for x_part, y in batches_of(Arrays(x, np.arange(10)), cluster, 3):
        assert x_part["words"].shape[1:] == [5]
        words = tf.sparse.to_dense(x_part["words"]).numpy()
        for tokens, word, number in zip(x_part["tokens"], words, y.numpy(), strict=True):
            assert tokens.numpy().tolist() == rows[number]
            assert word.tolist() == dense[number].tolist()
            seen.append(number)
    assert sorted(seen) == list(range(10))


class Frame:
    """What pandas gives."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values


def test_frames_are_taken_as_arrays(cluster):
    (x, y) = batches_of(Arrays(Frame(np.eye(4)), Frame(np.arange(4))), cluster, 1)[0]
    assert (x.numpy()[range(4), y.numpy()] == 1).all()


def test_arrays_are_kept_in_the_memory_of_the_host(cluster):
    tf.config.set_soft_device_placement(enabled=False)
    try:
        with tf.device("/device:GPU:0"):
            with pytest.raises((RuntimeError, tf.errors.OpError)):
                tf.convert_to_tensor(np.eye(4))
            assert Arrays(np.eye(4)).open(cluster, "").examples == 4
    finally:
        tf.config.set_soft_device_placement(enabled=True)


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
    pipeline = Pipeline(items, Plan(items.examples, 10), Order())
    problem = pipeline.find_bad_record(range(1))
    assert problem.startswith(f"parse failed on record 700 of {tmp_path}/b: ")
    assert len(calls) <= 512  # the others are parsed by a compiled function


def test_a_damaged_record_is_located(cluster, tmp_path):
    write(tmp_path / "a", [bytes(100)] * 50)
    items = Records(f"{tmp_path}/a", parse=tf.identity).open(cluster, str(tmp_path))
    content = bytearray((tmp_path / "a").read_bytes())
    content[116 * 20 + 50] ^= 1
    (tmp_path / "a").write_bytes(content)
    problem = Pipeline(items, Plan(50, 10), Order()).find_bad_record(range(1))
    assert problem.startswith(f"{tmp_path}/a is damaged at record 20 (4 records after byte 1856): ")


@pytest.mark.parametrize(
    ("x", "replicas", "expected"),
    [
        (np.eye(8), 1, "prefetched"),
        (np.eye(8), 2, "distributed to devices"),
        (np.array(["a"] * 8), 1, "plain"),
        (np.array(["a"] * 8), 2, "plain"),
    ],
)
def test_batches_of_numbers_are_copied_to_a_gpu_ahead(cluster, monkeypatch, x, replicas, expected):
    made = ["plain"]

    def distribute(create, options):
        made.append(f"distributed{' to devices' * options.experimental_fetch_to_device}")
        return create(None)

    def prefetch(device):
        assert device == "/device:GPU:0"
        made.append("prefetched")
        return lambda batches: batches

    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
    monkeypatch.setattr(tf.data.experimental, "prefetch_to_device", prefetch)
    task = SimpleNamespace(
        replicas=replicas,
        local_replicas=1,
        replica_ids=range(1),
        strategy=SimpleNamespace(distribute_datasets_from_function=distribute),
    )
    items = Arrays(x).open(cluster, "")
    Pipeline(items, Plan(8, 4, replicas), Order()).batches(task)
    assert made[-1] == expected


def test_arrays_of_different_lengths_are_refused(cluster):
    with pytest.raises(DataError, match="differ in length"):
        Arrays(tf.ragged.constant([[1], [2, 3]]), np.zeros(3)).open(cluster, "")
