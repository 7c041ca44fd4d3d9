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

RECORDS = """
import tensorflow as tf
from trainer.distributed.input import Records

def training():
    return Records("{pattern}", parse)

def parse(record):
    x = tf.cast(tf.io.decode_raw(record, tf.uint8)[:4], tf.float32) / 255
    return x, tf.reduce_sum(x, keepdims=True)
"""

OWN = """
import glob
import tensorflow as tf

def training():
    files = tf.data.Dataset.list_files(sorted(glob.glob("{pattern}")), shuffle=False)
    rows = tf.data.TFRecordDataset(files).map(parse)
    return rows.shuffle(50).batch({batch})

def parse(record):
    x = tf.cast(tf.io.decode_raw(record, tf.uint8)[:4], tf.float32) / 255
    return x, tf.reduce_sum(x, keepdims=True)
"""


def write_records(folder, counts, sizes=(20, 40)):
    folder.mkdir()
    random = np.random.default_rng(len(counts))
    for number, count in enumerate(counts):
        with tf.io.TFRecordWriter(str(folder / f"part-{number:03}.tfrecord")) as file:
            for length in random.integers(*sizes, count):
                file.write(random.bytes(int(length)))
    return folder / "part-*.tfrecord"


@pytest.fixture
def few(project):
    """A project, and the pattern of its 5 files of 100, 37, 64, 5 and 91 records."""
    project.write("trainer/model.py", MODEL)
    return project, write_records(project.folder / "few", (100, 37, 64, 5, 91))


def audited(project, job, *options, launcher=()):
    return project.local(job, "--audit", *launcher, "--", "--epochs=2", *options)


def test_each_record_once_from_empty_and_small_files(project):
    project.write("trainer/model.py", MODEL)
    counts = (0, 1, 0, 60, *[1] * 50)
    pattern = write_records(project.folder / "data-of-it", counts)
    project.write("trainer/data.py", RECORDS.format(pattern=pattern))
    result = audited(project, "job", "--global-batch-size=7", launcher=("--workers", "3"))
    assert result.code == 0, result.text
    assert "each of 111 examples was seen exactly once in each of 2 epochs" in result.out


def test_each_record_once_through_a_kill(few):
    project, pattern = few
    project.write("trainer/data.py", RECORDS.format(pattern=pattern))
    launcher = ("--workers", "2", "--restarts", "1", "--kill", "worker:0@step=14")
    options = ("--global-batch-size=12", "--checkpoint-every=5")
    result = audited(project, "job", *options, launcher=launcher)
    assert result.code == 0, result.text
    assert project.summary("job")["restarts"] == 1
    assert "each of 297 examples was seen exactly once in each of 2 epochs" in result.out


def test_steps_that_leave_data_out_are_refuted(few):
    project, pattern = few
    project.write("trainer/data.py", RECORDS.format(pattern=pattern))
    options = ("--global-batch-size=24", "--steps-per-epoch=5")
    result = audited(project, "job", *options, launcher=("--workers", "1"))
    assert result.code == 1, result.text
    assert "epoch 1: 177 examples were never seen (positions " in result.err


def test_a_worker_reads_its_own_bytes(project):
    """By the records that it took; and what the system counts of the data is little more."""
    project.write("trainer/model.py", MODEL)
    counts = (3000, *[60] * 50)
    pattern = write_records(project.folder / "data-of-it", counts, sizes=(500, 1500))
    project.write("trainer/data.py", RECORDS.format(pattern=pattern))
    launcher = ("--workers", "3")
    result = audited(project, "job", "--global-batch-size=600", launcher=launcher)
    assert result.code == 0, result.text
    shares = re.findall(r"^ *(?:chief|worker:\d) .* ([0-9.]+) %", result.out, re.MULTILINE)
    assert [float(share) for share in shares] == pytest.approx([100 / 3] * 3, abs=0.5)

    size = sum(path.stat().st_size for path in pattern.parent.iterdir())
    project.write("count_bytes.py", COUNT_BYTES)
    counted = project.run("count_bytes")
    assert counted.code == 0, counted.text
    read, buffer, shards = map(int, counted.out.split())
    assert size / 3 < read < size / 3 * 1.05 + shards * buffer + (64 << 10)


# What Linux counts as read while one of three replicas takes a pass of its batches.
COUNT_BYTES = """
import tensorflow as tf
from trainer import data
from trainer.distributed import cluster, pipeline, plan

def read():
    return int(open("/proc/self/io").readline().split()[1])

alone = cluster.Team(cluster.Role(), tf.distribute.get_strategy())
items = data.training().open(alone, ".")
dealt = plan.Plan(items.examples, 600, 3)
batches = pipeline.Pipeline(items, dealt, pipeline.Order(0, 10_000))
iterator = iter(batches.dataset(range(1, 2), 0, dealt.steps))
before = read()
for _ in range(dealt.steps):
    next(iterator)
print(read() - before, batches._buffer_bytes, len(dealt.shards_of(1)))
"""


IDLE = "the replicas have 105, 128, 64 rows: in 8 of the 16 steps of an epoch replica 2 is idle"


@pytest.mark.parametrize(
    ("policy", "shares", "warning"),
    [
        ("data", "99, worker:0 99, worker:1 99", ""),
        ("auto", "105, worker:0 128, worker:1 64", f"{IDLE}; --shard-policy data deals"),
    ],
)
def test_own_data_set_is_sharded_by_the_policy(few, policy, shares, warning):
    project, pattern = few
    project.write("trainer/data.py", OWN.format(pattern=pattern, batch=24))
    option = f"--shard-policy={policy}"
    result = audited(project, "job", option, launcher=("--workers", "3"))
    assert result.code == 0, result.text
    assert f"297 examples was seen exactly once in each of 2 epochs (chief {shares}" in result.out
    assert warning in result.text
    assert project.summary("job")["global_batch"] == 24


def test_shared_data_set_without_a_policy_is_explained_and_refuted(few):
    project, pattern = few
    project.write("trainer/data.py", OWN.format(pattern=pattern, batch=24))
    result = audited(project, "job", "--shard-policy=off", launcher=("--workers", "3"))
    assert result.code == 1, result.text
    assert "each of them 3 times (891 rows): use --shard-policy data" in result.text
    assert "297 examples were seen more than once" in result.err
    assert "(positions 0-296: 3 times)" in result.err


EQUAL_ROWS = """
import numpy as np
import tensorflow as tf

def training():
    x = np.random.default_rng(1).normal(size=(50, 4)).astype("float32")
    x = np.concatenate([x, x])
    return tf.data.Dataset.from_tensor_slices((x, x.sum(1))).shuffle(100).batch(10)
"""


def test_equal_rows_are_counted_separately(project):
    project.write("trainer/model.py", MODEL)
    project.write("trainer/data.py", EQUAL_ROWS)
    result = audited(project, "job", launcher=("--workers", "2"))
    assert result.code == 0, result.text
    assert "each of 100 examples was seen exactly once in each of 2 epochs" in result.out


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (".repeat()", "", "the data set has no end, so no epoch has: take .repeat() out of it"),
        (".unbatch()", "", "end it with .batch(n), n the global batch"),
        (".take(0)", "", "the data set is empty"),
        ("", "--global-batch-size=20", "the data set's batch(24) is the global batch, and 20 is"),
    ],
)
def test_data_sets_that_cannot_be_sharded(few, change, options, message):
    project, pattern = few
    text = OWN.format(pattern=pattern, batch=24).replace("batch(24)", f"batch(24){change}")
    project.write("trainer/data.py", text)
    result = project.trainer("--job-dir=job", *options.split())
    assert result.code == 1, result.text
    assert message in result.err


def test_one_file_for_two_workers_is_sharded_by_rows_or_refused(project):
    project.write("trainer/model.py", MODEL)
    pattern = write_records(project.folder / "one", (100,))
    project.write("trainer/data.py", OWN.format(pattern=pattern, batch=24))
    result = audited(project, "job", launcher=("--workers", "2"))
    assert result.code == 0, result.text
    assert "the files cannot be dealt out, it has 1 file(s) for 2 replicas" in result.text
    assert "each of 100 examples was seen exactly once" in result.out
    refused = project.local("refused", "--workers", "2", "--", "--shard-policy=file")
    assert refused.code == 1, refused.text
    assert "it has 1 file(s) for 2 replicas: use --shard-policy data" in refused.err


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ("25", "parts of it: use batch(24) or batch(26)"),
        (
            "12 * len(os.environ['TF_CONFIG'].split('chief'))",
            "the data set has batches of other sizes on other tasks (",
        ),
    ],
)
def test_batches_that_tasks_cannot_share_are_refused(few, batch, message):
    project, pattern = few
    project.write("trainer/data.py", "import os\n" + OWN.format(pattern=pattern, batch=batch))
    result = project.local("job", "--workers", "2")
    assert result.code == 1, result.text
    assert message in result.text


def test_policy_is_for_own_data_sets(few):
    project, pattern = few
    project.write("trainer/data.py", RECORDS.format(pattern=pattern))
    result = project.trainer("--shard-policy=data", "--job-dir=job")
    assert result.code == 1
    assert "--shard-policy is for a tf.data.Dataset of your own" in result.err
