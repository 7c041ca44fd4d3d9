"""Each source and option: each example once per pass, the same steps on any number of replicas."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer import Csv, ImageFolder, Records, Tfds
from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.examples.example_source import DEFAULT, InputOptions
from distlaunch_trainer.input.order.pipeline import Pipeline
from distlaunch_trainer.input.order.plan import BatchPlan
from distlaunch_trainer.input.records import records

from ...small_datasets import prepare_tfds, write_image_folder  # noqa: TID252 - tests are no package
from ..conftest import write_records  # noqa: TID252

EXAMPLES, BATCH = 53, 7
IN_MEMORY = InputOptions(cache="memory")


def one_byte_each(count):
    return [bytes([number]) for number in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data of each kind; each has 53 examples."""
    folder = tmp_path_factory.mktemp("data")
    for name, count in (("a", 30), ("b", 23)):
        write_records(folder / f"{name}.tfrecord", one_byte_each(count))
    write_records(folder / "packed.gz", one_byte_each(EXAMPLES), "GZIP")
    prepare_tfds("svhn_cropped", folder / "tfds", {"train": 50, "test": 13}, (32, 32, 3))
    write_image_folder(folder / "images", {"cat": 30, "dog": 23}, (5, 9))
    rows = "".join(f"{number},{number % 2}\n" for number in range(EXAMPLES))
    (folder / "rows.csv").write_text(f"x,label\n{rows}")
    return folder


def first_byte(record):
    assert record.shape.rank is not None
    return tf.cast(tf.io.decode_raw(record, tf.uint8), tf.float32), tf.strings.length(record)


LARGE = "large "  # not held in memory
SOURCES = {
    "records": lambda folder: Records(f"{folder}/*.tfrecord", parse=first_byte),
    "records in batches": lambda folder: Records(f"{folder}/*.tfrecord", parse_batch=first_byte),
    "gzip": lambda folder: Records(f"{folder}/packed.gz", parse=first_byte),
    "gzip in batches": lambda folder: Records(f"{folder}/packed.gz", parse_batch=first_byte),
    "tfds": lambda folder: Tfds("svhn_cropped", "train[20%:]+test", data_dir=f"{folder}/tfds"),
    "images": lambda folder: ImageFolder(f"{folder}/images", (4, 4)),
    "csv": lambda folder: Csv(f"{folder}/rows.csv", "label"),
}


def steps_of(items, replicas, first=0, passes=2):
    """Return the numbers, and the data, of each step's examples over all replicas."""
    plan = BatchPlan(items.examples, BATCH, replicas)
    pipeline = Pipeline(items, plan, seed=3, shuffle_buffer=20)
    steps = [{} for _ in range(first, passes * plan.steps)]
    batches = pipeline.dataset(range(replicas), first, passes * plan.steps).as_numpy_iterator()
    for step in steps:
        for _ in range(replicas):
            data, rows, _, numbers = next(batches)
            for row, number in enumerate(numbers.reshape(len(numbers), -1)[:rows, 0].tolist()):
                assert number not in step
                step[number] = [np.array(part[row]).tobytes() for part in tf.nest.flatten(data)]
    return steps


def opened(name, folder, cluster, options=DEFAULT):
    examples = SOURCES[name.removeprefix(LARGE)](folder)
    with pytest.MonkeyPatch.context() as patch:
        if name.startswith(LARGE):
            patch.setattr(records, "_HELD_BYTES", 0)
        return examples.open(cluster, str(folder), replace(options, numbered=True))


@pytest.fixture(scope="module")
def expected(folder, cluster):
    """Return the steps of two passes of a source on one replica, by default options."""
    return functools.cache(lambda name: steps_of(opened(name, folder, cluster), 1))


CLUSTERS = [(2, 3)]
CASES = [
    ("large records", IN_MEMORY),
    ("large records in batches", IN_MEMORY),
    ("records", DEFAULT),
    ("gzip", IN_MEMORY),
    ("gzip in batches", DEFAULT),
    ("tfds", InputOptions(cache="FOLDER")),
    ("images", IN_MEMORY),
    ("csv", DEFAULT),
]
if os.environ.get("DISTLAUNCH_TEST_LAWS"):  # make laws
    CLUSTERS = [(1, 0), (2, 3), (3, 9), (5, 12)]
    READ = ("records", "records in batches", "tfds")
    NAMES = [*SOURCES, *(LARGE + name for name in READ)]
    CASES += [(name, DEFAULT) for name in NAMES]
    CASES += [(name, InputOptions(cache="FOLDER")) for name in NAMES]


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_each_example_once_a_pass_in_the_same_steps(folder, cluster, expected, name, options):
    """On two or five replicas, resumed within a pass."""
    if options.cache == "FOLDER":
        options = replace(options, cache=f"{folder}/cache")
    steps = expected(name)
    half = len(steps) // 2
    for one_pass in (steps[:half], steps[half:]):
        numbers = sorted(number for step in one_pass for number in step)
        assert numbers == list(range(EXAMPLES))
    items = opened(name, folder, cluster, options)
    for replicas, first in CLUSTERS:
        assert steps_of(items, replicas, first) == steps[first:]


def test_gzip_files_of_much_data_are_refused(folder, cluster):
    problem = rf"^{folder}/packed.gz is a GZIP file, .*; write plain TFRecord files$"
    with pytest.raises(DataError, match=problem):
        opened("large gzip", folder, cluster)


def test_a_cache_parses_each_example_once(folder, cluster, tmp_path):
    parsed = []

    def count(number):
        parsed.append(int(number))
        return number

    def parse(record):
        number = tf.io.decode_raw(record, tf.uint8)[0]
        return tf.ensure_shape(tf.py_function(count, [number], tf.uint8), []), record

    options = InputOptions(cache=str(tmp_path / "cache"), numbered=True)
    source = Records(f"{folder}/packed.gz", parse=parse)
    items = source.open(cluster, "", options)
    assert steps_of(items, 1)[:8] == steps_of(items, 2, passes=1)
    assert sorted(parsed) == list(range(EXAMPLES))


@pytest.mark.parametrize(("name", "options"), [("large records", IN_MEMORY), ("records", DEFAULT)])
def test_records_in_memory_are_not_read_again(cluster, tmp_path, name, options):
    path = tmp_path / "a.tfrecord"
    write_records(path, one_byte_each(30))
    items = opened(name, tmp_path, cluster, options)
    steps = steps_of(items, 1, passes=1)
    path.unlink()
    assert steps_of(items, 2, passes=1) == steps


def random_flip(record):
    return tf.image.random_flip_left_right(tf.zeros([4, 4, 3])), record


def test_what_cannot_be_cached_is_refused(folder, cluster, monkeypatch):
    random = Records(f"{folder}/packed.gz", parse=random_flip)
    with pytest.raises(DataError, match=r"would repeat the random numbers of trainer/data.py \("):
        random.open(cluster, "", IN_MEMORY)
    images = ImageFolder(f"{folder}/images", (4, 4))
    with pytest.raises(DataError, match="takes `memory` or a folder of a local disk"):
        images.open(cluster, "", InputOptions(cache="gs://bucket/cache"))
    sizes = {"SC_PAGE_SIZE": 100, "SC_PHYS_PAGES": 100}
    monkeypatch.setattr(
        "distlaunch_trainer.input.examples.example_cache.os", SimpleNamespace(sysconf=sizes.get)
    )
    with pytest.raises(DataError, match=r"takes 0.0 GB in each task, and the machine has 0.0 GB"):
        images.open(cluster, "", IN_MEMORY)
