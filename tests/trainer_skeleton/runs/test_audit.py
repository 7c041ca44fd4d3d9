"""`local --audit`: each example once, its bytes read by one worker; or where that does not hold."""

import re
import subprocess
import sys

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
    """The files of the facts that were measured: 100, 37, 64, 5 and 91 records."""
    project.write("trainer/model.py", MODEL)
    return project, write_records(project.folder / "few", (100, 37, 64, 5, 91))


def audited(project, job, *options, launcher=()):
    return project.local(job, "--audit", *launcher, "--", "--epochs=2", *options)


@pytest.mark.parametrize(
    ("workers", "counts", "batch"),
    [(3, (100, 37, 64, 5, 91), 24), (2, (0, 1, 0, 60), 7), (4, (1,) * 50, 6)],
)
def test_each_record_once(project, workers, counts, batch):
    project.write("trainer/model.py", MODEL)
    pattern = write_records(project.folder / "data-of-it", counts)
    project.write("trainer/data.py", RECORDS.format(pattern=pattern))
    options = ("--workers", str(workers))
    result = audited(project, "job", f"--global-batch-size={batch}", launcher=options)
    assert result.code == 0, result.text
    assert f"each of {sum(counts)} examples was seen exactly once in each of 2 epo" in result.out


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
    result = audited(project, "job", "--global-batch-size=24", "--steps-per-epoch=5")
    assert result.code == 1, result.text
    assert "epoch 1: 177 examples were never seen (positions " in result.err


@pytest.mark.parametrize(
    ("files", "each"),
    [(1, 6000), (50, 120)],
    ids=["one large file", "fifty small ones"],
)
def test_a_worker_reads_its_own_bytes(project, files, each):
    """By the records that it took; and what the system counts of the data is little more."""
    project.write("trainer/model.py", MODEL)
    pattern = write_records(project.folder / "data-of-it", (each,) * files, sizes=(500, 1500))
    project.write("trainer/data.py", RECORDS.format(pattern=pattern))
    launcher = ("--workers", "3")
    result = audited(project, "job", "--global-batch-size=600", launcher=launcher)
    assert result.code == 0, result.text
    shares = re.findall(r"^ *(?:chief|worker:\d) .* ([0-9.]+) %", result.out, re.MULTILINE)
    assert [float(share) for share in shares] == pytest.approx([100 / 3] * 3, abs=0.5)

    size = sum(path.stat().st_size for path in pattern.parent.iterdir())
    project.write("count_bytes.py", COUNT_BYTES)
    command = [sys.executable, "count_bytes.py"]
    done = subprocess.run(command, cwd=project.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read, buffer, shards = map(int, done.stdout.split())
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


POLICIES = {
    "data": ("99, worker:0 99, worker:1 99", ""),
    "file": (
        "105, worker:0 128, worker:1 64",
        "the replicas have 105, 128, 64 rows: in 8 of the 16 steps of an epoch replica 2 is",
    ),
    "auto": ("105, worker:0 128, worker:1 64", "replica 2 is idle; --shard-policy data deals"),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_own_data_set_is_dealt_out_as_the_policy_says(few, policy):
    project, pattern = few
    project.write("trainer/data.py", OWN.format(pattern=pattern, batch=24))
    shares, warning = POLICIES[policy]
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


ALIKE = """
import numpy as np
import tensorflow as tf

def training():
    x = np.random.default_rng(1).normal(size=(50, 4)).astype("float32")
    x = np.concatenate([x, x])
    return tf.data.Dataset.from_tensor_slices((x, x.sum(1))).shuffle(100).batch(10)
"""


def test_rows_that_are_alike_are_told_apart(project):
    project.write("trainer/model.py", MODEL)
    project.write("trainer/data.py", ALIKE)
    result = audited(project, "job", launcher=("--workers", "2"))
    assert result.code == 0, result.text
    assert "each of 100 examples was seen exactly once in each of 2 epochs" in result.out


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ("", "--shard-policy=file", "it has 1 file(s) for 2 replicas: use --shard-policy data"),
        (".repeat()", "", "the data set has no end, so no epoch has: take .repeat() out of it"),
        (".unbatch()", "", "end it with .batch(n), n the global batch"),
        (".take(0)", "", "the data set is empty"),
        ("", "--global-batch-size=20", "the data set's batch(24) is the global batch, and 20 is"),
        (".unbatch().batch(25)", "", "parts of it: use batch(24) or batch(26)"),
    ],
)
def test_data_sets_that_cannot_be_dealt_out(project, change, options, message):
    project.write("trainer/model.py", MODEL)
    pattern = write_records(project.folder / "one", (100,))
    text = OWN.format(pattern=pattern, batch=24).replace("batch(24)", f"batch(24){change}")
    project.write("trainer/data.py", text)
    result = project.local("job", "--workers", "2", "--", *options.split())
    assert result.code == 1, result.text
    assert message in result.err


def test_one_file_for_two_workers_is_dealt_out_by_rows(project):
    project.write("trainer/model.py", MODEL)
    pattern = write_records(project.folder / "one", (100,))
    project.write("trainer/data.py", OWN.format(pattern=pattern, batch=24))
    result = audited(project, "job", launcher=("--workers", "2"))
    assert result.code == 0, result.text
    assert "the files cannot be dealt out, it has 1 file(s) for 2 replicas" in result.text
    assert "each of 100 examples was seen exactly once" in result.out


def test_policy_is_for_own_data_sets(few):
    project, pattern = few
    project.write("trainer/data.py", RECORDS.format(pattern=pattern))
    result = project.trainer("--shard-policy=data", "--job-dir=job")
    assert result.code == 1
    assert "--shard-policy is for a tf.data.Dataset of your own" in result.err


def test_batches_of_other_sizes_on_other_tasks_are_refused(few):
    project, pattern = few
    text = OWN.format(pattern=pattern, batch="12 * len(os.environ['TF_CONFIG'].split('chief'))")
    project.write("trainer/data.py", "import os\n" + text)
    result = project.local("job", "--workers", "2")
    assert result.code == 1, result.text
    assert "the data set has batches of other sizes on other tasks (" in result.text
