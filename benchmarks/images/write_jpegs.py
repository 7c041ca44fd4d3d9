"""Write made-up JPEG images of 256 x 256 into eight TFRecord files: `python write_jpegs.py FOLDER`.

Smooth ones with some noise, so that they have the size of photographs: some 20 kB.
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
from write import serialized

EXAMPLES = 2_048
FILES = 8


def main() -> None:
    """Write the files."""
    folder = Path(sys.argv[1])
    generator = np.random.default_rng(0)
    for number in range(FILES):
        with tf.io.TFRecordWriter(str(folder / f"{number}.jpeg.tfrecord")) as file:
            for _ in range(EXAMPLES // FILES):
                colors = generator.integers(0, 224, (8, 8, 3)).astype(np.float32)
                smooth = tf.image.resize(colors, (256, 256), method="bicubic").numpy()
                image = np.clip(smooth + generator.normal(0, 8, smooth.shape), 0, 255)
                jpeg = tf.io.encode_jpeg(image.astype(np.uint8), quality=90).numpy()
                file.write(serialized(jpeg, int(generator.integers(0, 10))))


if __name__ == "__main__":
    main()
