"""Images in a folder for each class: ``ImageFolder``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import DataError, summarize
from distlaunch_trainer.input.records.record_index import check_same_files
from distlaunch_trainer.task.storage import explained, join

from .example_cache import ExampleParser
from .example_source import DEFAULT, Examples, ExampleSource, InputOptions

Dataset = tf.data.Dataset

_FORMATS = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
_CHANNELS = {"grayscale": 1, "rgb": 3, "rgba": 4}
_LABEL_MODES = ("int", "categorical", "binary")
_SUBSETS = ("training", "validation")
_NUMBER = tf.TensorSpec([], tf.int64)


@dataclass(frozen=True)
class ImageFolder(Examples):
    """Images in a folder for each class, as ``keras.utils.image_dataset_from_directory`` has them.

    Parameters
    ----------
    directory
        The folder of the classes' folders: a local path, ``/gcs/BUCKET/...`` or
        ``gs://BUCKET/...``.
    image_size
        Height and width to resize to. Pixels are float32, 0 ... 255.
    label_mode
        ``int``: the number of the class (int64), ``categorical``: one-hot, ``binary``: 0.0 or 1.0
        (float32).
    class_names
        The folders, in the order of their numbers; by default all, in alphabetical order.
    color_mode
        ``rgb``, ``rgba`` or ``grayscale``.
    interpolation
        As ``tf.image.resize`` takes it.
    crop_to_aspect_ratio
        Whether to crop images instead of distorting them.
    validation_split
        The share of the images that ``validation`` has and ``training`` has not.
    subset
        ``training`` or ``validation``.
    seed
        By which the images of ``validation`` are chosen.
    map
        From ``(image, label)``, as two arguments, to ``(x, y)`` or ``(x, y, sample_weight)``.
    class_weight
        The weight of each class of ``y`` in the loss, 1 for those left out.
    """

    directory: str
    image_size: tuple[int, int] = (256, 256)
    label_mode: str = "int"
    class_names: Sequence[str] | None = None
    color_mode: str = "rgb"
    interpolation: str = "bilinear"
    crop_to_aspect_ratio: bool = False
    validation_split: float = 0.0
    subset: str | None = None
    seed: int = 0
    map: Callable[[tf.Tensor, tf.Tensor], Any] | None = None
    class_weight: Mapping[int, float] | None = None

    def __post_init__(self) -> None:
        for name, value, values in (
            ("label_mode", self.label_mode, _LABEL_MODES),
            ("color_mode", self.color_mode, tuple(_CHANNELS)),
        ):
            if value not in values:
                raise DataError(f"ImageFolder takes {name}= {' or '.join(values)}, got {value!r}")
        if not 0 <= self.validation_split < 1:
            raise DataError(
                f"ImageFolder takes validation_split= 0 ... 1, got {self.validation_split}"
            )
        if bool(self.validation_split) != (self.subset in _SUBSETS):
            raise DataError(
                "ImageFolder takes validation_split= together with subset='training' or "
                "subset='validation'"
            )

    def open(
        self,
        cluster: Cluster,
        fallback_dir: str,  # noqa: ARG002
        options: InputOptions = DEFAULT,
    ) -> ImageSource:
        """List the images, and check that all tasks see the same; a collective."""
        names, paths, labels = self._list()
        listed = [path.removeprefix(self.directory) for path in paths]
        check_same_files(listed, self.directory, cluster)
        chosen = self._chosen(len(paths))
        return ImageSource(
            self,
            names,
            [paths[number] for number in chosen],
            labels[chosen],
            options=options,
            tasks=cluster.role.num_workers,
        )

    def _list(self) -> tuple[list[str], list[str], np.ndarray]:
        """Return the names of the classes, and path and class of each image."""
        if not tf.io.gfile.isdir(self.directory):
            raise DataError(
                f"ImageFolder: no folder {self.directory}: correct its path in trainer/data.py"
            )
        folders = self._images_by_folder()
        names = list(self.class_names or sorted(folders))
        for name in names:
            if name not in folders:
                raise DataError(
                    f"{join(self.directory, name)} has no images ({', '.join(_FORMATS)})"
                )
        if not names:
            raise DataError(
                f"{self.directory} has no images ({', '.join(_FORMATS)}) in folders of classes"
            )
        if self.label_mode == "binary" and len(names) != 2:
            raise DataError(
                f"label_mode='binary' takes two classes, and {self.directory} has {len(names)}: "
                f"{', '.join(names[:10])}"
            )
        paths = [path for name in names for path in folders[name]]
        return names, paths, np.repeat(np.arange(len(names)), [len(folders[n]) for n in names])

    def _images_by_folder(self) -> dict[str, list[str]]:
        """Return the sorted paths of the images in each folder, with those of its own folders."""
        root, level = self.directory.rstrip("/"), "/*/*"
        escaped = re.sub(r"([*?\[\\])", r"\\\1", root)
        folders: dict[str, list[str]] = {}
        with explained("cannot list the data", root):
            # One listing for each level of folders: in a bucket a walk is a request for each file.
            while matches := tf.io.gfile.glob(escaped + level):
                for path in matches:
                    if path.lower().endswith(_FORMATS):
                        name = path[len(root) + 1 :].partition("/")[0]
                        folders.setdefault(name, []).append(path)
                level += "/*"
        return {name: sorted(paths) for name, paths in folders.items()}

    def _chosen(self, count: int) -> np.ndarray:
        """Return the numbers of the images of the subset, in the order of their paths."""
        if self.subset is None:
            return np.arange(count)
        shuffled = np.random.default_rng(self.seed).permutation(count)
        first = count - int(count * self.validation_split)
        part = shuffled[:first] if self.subset == "training" else shuffled[first:]
        return np.sort(part)

    def load(self, path: tf.Tensor) -> tf.Tensor:
        """Return the image of a file, resized (float32)."""
        channels = _CHANNELS[self.color_mode]
        image = tf.io.decode_image(tf.io.read_file(path), channels, expand_animations=False)
        if self.crop_to_aspect_ratio:
            image = keras.preprocessing.image.smart_resize(
                image, self.image_size, interpolation=self.interpolation
            )
        else:
            image = tf.image.resize(image, self.image_size, method=self.interpolation)
        return tf.ensure_shape(tf.cast(image, tf.float32), [*self.image_size, channels])


class ImageSource(ExampleSource):
    """The examples of `ImageFolder`; an item is the number of an image."""

    item_spec = _NUMBER
    item_bytes = 8

    def __init__(
        self,
        folder: ImageFolder,
        names: list[str],
        paths: list[str],
        labels: np.ndarray,
        *,
        options: InputOptions,
        tasks: int,
    ) -> None:
        super().__init__(folder.class_weight)
        self._folder = folder
        self.facts = {"kind": "images", "directory": folder.directory, "classes": names}
        self._local_paths = paths
        self.options = options
        self.examples = len(paths)
        with tf.device("CPU"):
            self._paths = tf.constant(paths, tf.string)
            self._labels = _labels_of(folder.label_mode, labels, len(names))
        self._parser = ExampleParser(
            self._example, _NUMBER, examples=self.examples, tasks=tasks, options=options
        )

    def _example(self, number: tf.Tensor) -> Any:
        image, label = self._folder.load(self._paths[number]), self._labels[number]
        return self._folder.map(image, label) if self._folder.map else (image, label)

    def batch(self, items: Dataset, rows: int) -> Dataset:
        """Return batches of images, several read and decoded at once."""
        return items.unbatch().map(self._parse, num_parallel_calls=tf.data.AUTOTUNE).batch(rows)

    def _parse(self, number: tf.Tensor) -> Any:
        example = self._parser(number, number)
        return (example, number) if self.options.numbered else example

    def find_bad_record(self, numbers: Sequence[int]) -> str | None:
        """Return what is wrong with the first image that cannot be read or decoded, if any is."""
        images = Dataset.from_tensor_slices(tf.constant(numbers, tf.int64))
        loaded = images.map(self._parser.function, num_parallel_calls=tf.data.AUTOTUNE)
        good = 0
        try:
            for _ in loaded:
                good += 1
        except tf.errors.OpError as error:
            return f"{self._local_paths[numbers[good]]} cannot be read: {summarize(error)}"
        return None

    def input_facts(self) -> list[str]:
        """Return what the examples are read from, as parts of a line."""
        return [f"{len(self.facts['classes']):,} classes"]


def _labels_of(mode: str, labels: np.ndarray, classes: int) -> tf.Tensor:
    if mode == "categorical":
        return tf.one_hot(labels, classes, dtype=tf.float32)
    if mode == "binary":
        return tf.constant(labels[:, np.newaxis], tf.float32)
    return tf.constant(labels, tf.int64)
