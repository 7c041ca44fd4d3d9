"""`local --audit`: each example once, its bytes read by one worker; or where that does not hold."""

import re

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.slow

MODEL = """
import keras

def create_model():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
"""

PARSE = """
def parse(record):
    x = tf.cast(tf.io.decode_raw(record, tf.uint8)[:4], tf.float32) / 255
    return x, tf.reduce_sum(x, keepdims=True)
"""

RECORDS = f"""
import tensorflow as tf
from distlaunch_trainer import Records

def training():
    return Records("{{pattern}}", parse)
{PARSE}"""

OWN = """
import numpy as np
import tensorflow as tf

def training():
    x = np.random.default_rng(0).normal(size=(101, 4)).repeat(2, 0)  # {pattern}
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True)))
    return data.shuffle(1000).batch(10)
"""


def write_records(folder, counts, sizes=(20, 40), copies=1):
    """Write a file of each count, with copies of its records; return the files' pattern."""
    folder.mkdir()
    random = np.random.default_rng(len(counts))
    for number, count in enumerate(counts):
        records = [random.bytes(int(length)) for length in random.integers(*sizes, count)]
        with tf.io.TFRecordWriter(str(folder / f"part-{number:03}.tfrecord")) as file:
            for record in records * copies:
                file.write(record)
    return folder / "part-*.tfrecord"


@pytest.fixture
def audited(new_project):
    """Run two epochs of a project with an audit; return the project and the result."""

    def run(data, pattern, *options, workers=2, launcher=(), code=0):
        project = new_project(MODEL, data.format(pattern=pattern))
        launcher = ("--audit", "--workers", str(workers), *launcher)
        return project, project.local("job", *launcher, "--", "--epochs=2", *options, code=code)

    return run


@pytest.fixture
def few(tmp_path):
    """The pattern of 5 files of 100, 37, 64, 5 and 91 records."""
    return write_records(tmp_path / "few", (100, 37, 64, 5, 91))


def test_each_record_once_and_by_one_worker(audited, tmp_path):
    """By the records that it took; and what the system counts of the data is little more."""
    counts = (0, 3000, 1, 0, *[60] * 50)
    pattern = write_records(tmp_path / "many", counts, sizes=(500, 1500))
    project, result = audited(RECORDS, pattern, "--global-batch-size=601", workers=3)
    assert "each of 6,001 examples was seen exactly once in each of 2 epochs" in result.out
    shares = re.findall(r"^ *(?:chief|worker:\d) .* ([0-9.]+) %", result.out, re.MULTILINE)
    assert [float(share) for share in shares] == pytest.approx([100 / 3] * 3, abs=0.5)

    size = sum(path.stat().st_size for path in pattern.parent.iterdir())
    project.write("count_bytes.py", COUNT_BYTES)
    counted = project.run("count_bytes")
    assert counted.code == 0, counted.text
    read, ranges = map(int, counted.out.split())
    assert size / 3 < read < size / 3 * 1.05 + ranges * (20 << 10) + (64 << 10)


# What Linux counts as read while one of three replicas takes a pass of its batches.
COUNT_BYTES = """
import tensorflow as tf
from trainer import data
from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.input.order import pipeline, plan
from distlaunch_trainer.input.records import records

def read():
    return int(open("/proc/self/io").readline().split()[1])

records._HELD_BYTES = 0  # as data that do not fit into memory
alone = Cluster(Role(), tf.distribute.get_strategy())
items = data.training().open(alone, ".")
batch_plan = plan.BatchPlan(items.examples, 601, 3, shards=12)
batches = pipeline.Pipeline(items, batch_plan, shuffle_buffer=10_000)
iterator = iter(batches.dataset(range(1, 2), 0, batch_plan.steps))
before = read()
for _ in range(batch_plan.steps):
    next(iterator)
print(read() - before, batch_plan.shards // 3)
"""


def test_each_record_once_through_a_kill(audited, few):
    launcher = ("--restarts", "1", "--kill", "worker:0@step=14")
    options = ("--global-batch-size=12", "--checkpoint-every=5")
    project, result = audited(RECORDS, few, *options, launcher=launcher)
    assert project.summary("job")["restarts"] == 1
    assert "each of 297 examples was seen exactly once in each of 2 epochs" in result.out


def test_steps_that_leave_data_out_are_refuted(audited, few):
    options = ("--global-batch-size=24", "--steps-per-epoch=5")
    _, result = audited(RECORDS, few, *options, workers=1, code=1)
    assert "epoch 1: 177 examples were never seen (positions " in result.err


def test_each_row_of_a_users_dataset_once(audited):
    """Each row has an equal one, and the last batch has fewer rows than the others."""
    _, result = audited(OWN, "")
    assert "each of 202 examples was seen exactly once in each of 2 epochs" in result.out
