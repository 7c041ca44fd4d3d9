"""Tfds: splits, features, and datasets that are not prepared, damaged or in another format."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from distlaunch_trainer import Tfds
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.order.pipeline import Pipeline
from distlaunch_trainer.input.order.plan import BatchPlan

from ....small_datasets import prepare_tfds  # noqa: TID252 - tests are no package
from ...conftest import write_records  # noqa: TID252

NAME = "svhn_cropped"
IMAGE = (32, 32, 3)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    prepare_tfds(NAME, folder, {"train": 40, "test": 11}, IMAGE)
    return str(folder)


def batch_of(source, cluster):
    """Return all examples of a source in a batch."""
    items = source.open(cluster, "")
    plan = BatchPlan(items.examples, items.examples)
    data, *_ = next(iter(Pipeline(items, plan).dataset(range(1), 0, 1)))
    return tf.nest.map_structure(np.asarray, data)


def in_order(images):
    return sorted(image.tobytes() for image in images)


@pytest.mark.parametrize("split", ["test", "train[10%:75%]", "train[:3]+test[5:]+train[35:]"])
def test_the_examples_are_those_of_tfds(cluster, data_dir, split):
    images, labels = batch_of(Tfds(NAME, split, data_dir=data_dir), cluster)
    expected = tfds.load(NAME, split=split, data_dir=data_dir, as_supervised=True, batch_size=-1)
    assert in_order(images) == in_order(expected[0].numpy())
    assert sorted(labels) == sorted(expected[1].numpy())


def test_map_gets_the_features(cluster, data_dir):
    def number_and_label(features):
        return tf.strings.length(features["id"]), features["label"], 2.0

    whole = Tfds(NAME, "test", data_dir=data_dir, as_supervised=False, map=number_and_label)
    lengths, labels, weights = batch_of(whole, cluster)
    assert sorted(lengths) == [6] * 10 + [7]
    assert (len(labels), set(weights)) == (11, {2.0})
    pair = Tfds(NAME, "test", data_dir=data_dir, map=lambda image, label: (image / 255, label))
    images, _ = batch_of(pair, cluster)
    assert 0 <= images.min() < images.max() <= 1


@pytest.mark.parametrize("split", ["validation", "train[5", "train[:80]+extra"])
def test_a_split_that_does_not_exist_is_named(cluster, data_dir, split):
    with pytest.raises(DataError, match=r"^svhn_cropped has no split '.*', but test, train, and"):
        Tfds(NAME, split, data_dir=data_dir).open(cluster, "")


def test_a_dataset_without_a_label_needs_map(cluster, data_dir, tmp_path):
    source = tf.io.gfile.glob(f"{data_dir}/{NAME}/*")[0]
    folder = tmp_path / NAME / source.rpartition("/")[2]
    folder.mkdir(parents=True)
    for path in tf.io.gfile.glob(f"{source}/*"):
        tf.io.gfile.copy(path, f"{folder}/{path.rpartition('/')[2]}")
    facts = json.loads((folder / "dataset_info.json").read_text())
    del facts["supervisedKeys"]
    facts["name"] = "plain"
    (folder / "dataset_info.json").write_text(json.dumps(facts))
    (tmp_path / NAME).rename(tmp_path / "plain")
    for path in (tmp_path / "plain").glob(f"*/{NAME}-*"):
        path.rename(path.with_name(path.name.replace(NAME, "plain")))
    with pytest.raises(DataError, match=r"as_supervised=False and map=, from id, image, label to"):
        Tfds("plain", data_dir=str(tmp_path)).open(cluster, "")


def test_what_cannot_be_prepared_is_an_error_with_the_command(cluster, tmp_path, monkeypatch):
    """No download is tried: the dataset takes files that are downloaded by hand."""
    prepare = "tensorflow_datasets.core.DatasetBuilder.download_and_prepare"
    with monkeypatch.context() as patch:
        patch.setattr(prepare, Mock(side_effect=AssertionError("Manual directory is missing")))
        with pytest.raises(DataError) as refused:
            Tfds("imagenet2012", data_dir=str(tmp_path)).open(cluster, "")
    message = str(refused.value)
    assert message.startswith(f"imagenet2012 is not in {tmp_path}/imagenet2012/")
    command = f"run: tfds build imagenet2012 --file_format=tfrecord --data_dir={tmp_path}"
    assert message.endswith(command)
    with pytest.raises(DataError, match=r"^Tfds\('nosuch'\): .*Dataset nosuch not found"):
        Tfds("nosuch", data_dir=str(tmp_path)).open(cluster, "")
    missing = ModuleNotFoundError("No module named 'a_b.c'", name="a_b.c")
    with monkeypatch.context() as patch:
        patch.setattr(prepare, Mock(side_effect=missing))
        with pytest.raises(DataError, match=r"No module named 'a_b.c'; install a package that"):
            Tfds("imagenet2012", data_dir=str(tmp_path)).open(cluster, "")
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(DataError, match=r"add tensorflow-datasets to requirements.txt"):
        Tfds(NAME, data_dir=str(tmp_path)).open(cluster, "")


def test_files_of_another_format_are_refused(cluster, tmp_path):
    prepare_tfds(NAME, tmp_path, {"train": 3}, IMAGE, file_format="array_record")
    message = "has files of the format array_record, which cannot be read here: remove it, and run"
    with pytest.raises(DataError, match=message):
        Tfds(NAME, data_dir=str(tmp_path)).open(cluster, "")


def test_files_that_lost_records_are_refused(cluster, tmp_path):
    prepare_tfds(NAME, tmp_path, {"train": 5}, IMAGE)
    (path,) = tmp_path.glob(f"{NAME}/*/*tfrecord*")
    records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    write_records(path, records[:4])
    with pytest.raises(DataError, match=r"has 4 records, and dataset_info.json has 5: remove"):
        Tfds(NAME, data_dir=str(tmp_path)).open(cluster, "")


ADDRESSES = ("a:1", "a:2", "b:1", "b:2", "c:1")


@pytest.mark.parametrize(("rank", "prepares"), [*enumerate([True, False, True, False, True])])
def test_one_task_of_each_machine_prepares(tmp_path, monkeypatch, rank, prepares):
    """Each task has a folder of its own here, as if no machine saw another's disk."""
    peers = ("chief", "worker:0", "worker:1", "worker:2", "worker:3")
    prepared = []

    class Prepares:
        def __init__(self, *_: object, **__: object) -> None:
            self.data_path = tmp_path / NAME
            self.info = SimpleNamespace(file_format=None)

        def download_and_prepare(self, file_format):
            prepared.append(file_format)

    cluster = SimpleNamespace(role=Role(peers[rank], peers, ADDRESSES), all_reduce_sum=abs)
    monkeypatch.setattr(tfds, "builder", Prepares)
    Tfds(NAME)._prepared_builder(tfds, cluster)
    assert prepared == ["tfrecord"] * (2 if rank == 0 else int(prepares))
