"""Write many small records into ten TFRecord files: `python write.py FOLDER RECORDS`."""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

FILES = 10
BYTES = 65  # 64 numbers and a label


def main() -> None:
    """Write the files."""
    folder, records = Path(sys.argv[1]), int(sys.argv[2])
    generator = np.random.default_rng(0)
    for number in range(FILES):
        rows = generator.integers(0, 10, (records // FILES, BYTES), np.uint8)
        with tf.io.TFRecordWriter(str(folder / f"records-{number}.tfrecord")) as file:
            for row in rows:
                file.write(row.tobytes())


if __name__ == "__main__":
    main()
