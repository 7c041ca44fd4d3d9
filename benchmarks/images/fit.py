"""`fit` of Keras on the model and data of a benchmark: `fit.py BATCH_SIZE EPOCHS RESULT`.

Arrays are passed as they are. JPEG records are read as TensorFlow's guide on performance has it:
files in parallel, parsed in parallel in any order, batched, prefetched.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from data import colors, decode, training
from model import create_model


class Clock(keras.callbacks.Callback):
    """Takes the time at the end of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_epoch_end(self, *_: Any) -> None:
        """Take it."""
        self.ends.append(time.perf_counter())


def jpegs(batch_size: int) -> tf.data.Dataset:
    """Return batches of decoded images."""
    files = tf.data.Dataset.list_files(f"{os.environ['DATA']}/*.jpeg.tfrecord")
    records = files.interleave(
        tf.data.TFRecordDataset,
        cycle_length=8,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=False,
    )
    images = records.shuffle(1000).map(
        decode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
    )
    return images.batch(batch_size).prefetch(tf.data.AUTOTUNE)


def main() -> None:
    """Train, and write when the epochs ended."""
    batch_size, epochs, result = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    keras.utils.set_random_seed(0)
    model, clock = create_model(), Clock()
    given: dict[str, Any] = {"epochs": epochs, "callbacks": [clock], "verbose": 0}
    source = os.environ["SOURCE"]
    if source == "jpeg":
        model.fit(jpegs(batch_size), **given)
    elif source == "colors":
        model.fit(*colors(), batch_size=batch_size, **given)
    else:
        arrays = training()
        model.fit(arrays.x, arrays.y, batch_size=batch_size, **given)
    result.write_text(json.dumps(clock.ends))


if __name__ == "__main__":
    main()
