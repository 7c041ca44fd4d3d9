"""ImageFolder: the images and labels of Keras's own function, and errors with the file."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from distlaunch_trainer import ImageFolder
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.order.pipeline import Pipeline
from distlaunch_trainer.input.order.plan import BatchPlan

from ....small_datasets import write_image_folder  # noqa: TID252 - tests are no package


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images") / "[animals]"
    write_image_folder(folder, {"dog": 5, "cat": 4, "bee": 3}, (7, 9))
    (folder / "dog" / "young").mkdir()
    (folder / "dog" / "000.jpg").rename(folder / "dog" / "young" / "000.JPG")
    (folder / "dog" / "notes.txt").write_text("no image")
    return str(folder)


def batch_of(source, cluster):
    """Return all examples of a source in a batch, in the order of their bytes."""
    items = source.open(cluster, "")
    plan = BatchPlan(items.examples, items.examples)
    (images, labels), *_ = next(iter(Pipeline(items, plan).dataset(range(1), 0, 1)))
    order = np.argsort([image.tobytes() for image in images.numpy()])
    return images.numpy()[order], labels.numpy()[order]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"label_mode": "categorical", "class_names": ["dog", "bee", "cat"]},
        {"color_mode": "grayscale", "interpolation": "nearest"},
        {"crop_to_aspect_ratio": True},
    ],
    ids=str,
)
def test_images_and_labels_are_those_of_keras(cluster, folder, options):
    images, labels = batch_of(ImageFolder(folder, (6, 4), **options), cluster)
    options = {"label_mode": "int", **options}
    keras_data = keras.utils.image_dataset_from_directory(
        folder, image_size=(6, 4), batch_size=12, shuffle=False, verbose=False, **options
    )
    expected, expected_labels = (part.numpy() for part in next(iter(keras_data)))
    expected = expected.astype("float32")  # of nearest, bytes
    order = np.argsort([image.tobytes() for image in expected])
    np.testing.assert_array_equal(images, expected[order])
    np.testing.assert_array_equal(labels, expected_labels[order])


def test_a_part_is_for_validation(cluster, folder):
    of_training, of_validation = (
        ImageFolder(folder, (6, 4), validation_split=0.34, subset=subset)
        for subset in ("training", "validation")
    )
    training, _ = batch_of(of_training, cluster)
    validation, _ = batch_of(of_validation, cluster)
    together = sorted(image.tobytes() for image in (*training, *validation))
    everything, _ = batch_of(ImageFolder(folder, (6, 4)), cluster)
    assert (len(training), len(validation)) == (8, 4)
    assert together == sorted(image.tobytes() for image in everything)


def test_map_and_binary_labels(cluster, folder):
    binary = ImageFolder(folder, (2, 2), label_mode="binary", class_names=["bee", "cat"])
    images, labels = batch_of(binary, cluster)
    assert (images.shape, labels.shape, labels.sum()) == ((7, 2, 2, 3), (7, 1), 4)
    mapped = ImageFolder(folder, (2, 2), map=lambda image, label: (image / 255, label + 1))
    images, labels = batch_of(mapped, cluster)
    assert images.max() <= 1
    assert set(labels) == {1, 2, 3}


def test_an_image_that_cannot_be_decoded_is_named(cluster, tmp_path):
    write_image_folder(tmp_path, {"cat": 5, "dog": 5}, (4, 4))
    (tmp_path / "dog" / "003.png").write_bytes(b"no image")
    items = ImageFolder(str(tmp_path), (4, 4)).open(cluster, "")
    pipeline = Pipeline(items, BatchPlan(10, 5))
    assert pipeline.find_bad_record(range(1)).startswith(f"{tmp_path}/dog/003.png cannot be read: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_mode": "one-hot"}, "label_mode= int or categorical or binary, got 'one-hot'"),
        ({"validation_split": 0.2}, "validation_split= together with subset='training' or"),
        ({"subset": "training"}, "validation_split= together with subset="),
        ({"class_names": ["cat", "cow"]}, r"/cow has no images \(\.bmp, "),
        ({"label_mode": "binary"}, "takes two classes, and .* has 3: bee, cat, dog"),
        ({"directory": "/nosuch"}, r"^ImageFolder: no folder /nosuch: correct its path in trainer"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(cluster, folder, options, message):
    with pytest.raises(DataError, match=message):
        ImageFolder(**{"directory": folder, **options}).open(cluster, "")


def test_tasks_that_see_different_images_are_refused(folder):
    cluster = SimpleNamespace(role=Role(), all_equal=lambda _: False)
    with pytest.raises(DataError, match=r"see different files for .* \(chief sees 12\): put"):
        ImageFolder(folder).open(cluster, "")
