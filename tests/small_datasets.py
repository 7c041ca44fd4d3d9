"""Small data in real formats: of TensorFlow Datasets, of keras.datasets, image folders."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def prepare_tfds(
    name: str,
    data_dir: Path,
    counts: Mapping[str, int],
    image: tuple[int, int, int],
    file_format: str = "tfrecord",
) -> None:
    """Prepare a dataset of TensorFlow Datasets, with its features and noise for images.

    The brightness of an image is that of its label, so that a model can learn it.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import registered

    real = type(tfds.builder(name, data_dir=data_dir))
    with registered.skip_registration():

        class Small(real):  # type: ignore[misc,valid-type]
            code_path = None  # beside which checksums of downloads would be

            def _split_generators(self, _: Any) -> dict[str, Iterator[Any]]:
                return {split: self._generate_examples(split) for split in counts}

            def _generate_examples(self, split: str) -> Iterator[Any]:
                classes = self.info.features["label"].num_classes
                images, labels = noise(counts[split], image, classes, seed=len(split))
                others = set(self.info.features) - {"image", "label"}
                for number, pixels in enumerate(images):
                    texts = dict.fromkeys(others, f"{split}-{number}")
                    yield number, {"image": pixels, "label": labels[number], **texts}

    Small.name = real.name
    tfds.disable_progress_bar()
    Small(data_dir=data_dir, file_format=file_format).download_and_prepare()


def noise(
    count: int, image: tuple[int, ...], classes: int, *, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return images of bytes and their labels, which are as bright as their label is high."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, count)
    brightness = (labels * 200 // max(1, classes - 1)).reshape(-1, *[1] * len(image))
    return (random.integers(0, 55, (count, *image)) + brightness).astype(np.uint8), labels


def write_image_folder(folder: Path, counts: Mapping[str, int], size: tuple[int, int]) -> None:
    """Write JPEG and PNG files, in a folder for each class."""
    for number, (name, count) in enumerate(counts.items()):
        (folder / name).mkdir(parents=True)
        for at, pixels in enumerate(noise(count, (*size, 3), 2, seed=number)[0]):
            encode, end = [(tf.io.encode_jpeg, "jpg"), (tf.io.encode_png, "png")][at % 2]
            tf.io.write_file(f"{folder}/{name}/{at:03}.{end}", encode(pixels))


def write_idx(folder: Path, counts: Mapping[str, int]) -> None:
    """Write the four files of MNIST's format that ``keras.datasets.fashion_mnist`` downloads."""
    folder.mkdir(parents=True)
    for name, count in counts.items():
        images, labels = noise(count, (28, 28, 1), 10, seed=count)
        with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(bytes(8) + labels.astype(np.uint8).tobytes())
        with gzip.open(folder / f"{name}-images-idx3-ubyte.gz", "wb") as file:
            file.write(bytes(16) + images.tobytes())
