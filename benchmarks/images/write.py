"""Write made-up images, as many and as large as MNIST's: `python write.py FOLDER`.

Once as arrays, `images.npz`, and once as eight TFRecord files.
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

EXAMPLES = 60_000
FILES = 8


def main() -> None:
    """Write the files."""
    folder = Path(sys.argv[1])
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 10, EXAMPLES)
    # Something to learn, so that the numbers stay ordinary ones: a picture a label, and noise.
    pictures = generator.integers(0, 128, (10, 28, 28), np.uint8)
    noise = generator.integers(0, 128, (EXAMPLES, 28, 28), np.uint8)
    images = pictures[labels] + noise
    np.savez(folder / "images.npz", x=images, y=labels)
    for number in range(FILES):
        path = folder / f"images-{number}.tfrecord"
        with tf.io.TFRecordWriter(str(path)) as file:
            part = slice(number, None, FILES)
            for image, label in zip(images[part], labels[part], strict=True):
                file.write(serialized(image.tobytes(), label))


def serialized(image: bytes, label: int) -> bytes:
    """Return an image and its label as a serialized example."""
    feature = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


if __name__ == "__main__":
    main()
