"""The fastest training loop that we could write by hand for one cluster, model and data set.

It does nothing but train: no last batch that is smaller, no checkpoint, no output while it runs,
no check of the loss. A whole epoch is one call of TensorFlow's, the data are drawn from memory,
loss and accuracy are read once at its end. Each process has cores of its own.
"""

import json
import os
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from model import create_model

BATCH_SIZE = 64


def main() -> None:
    """Train, and write when the epochs ended."""
    steps, epochs, result = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    cores = [int(core) for core in os.environ["CORES"].split(",")]
    os.sched_setaffinity(0, cores)
    tf.config.threading.set_intra_op_parallelism_threads(len(cores))
    tf.config.threading.set_inter_op_parallelism_threads(len(cores))
    config = json.loads(os.environ["TF_CONFIG"])
    workers, rank = len(config["cluster"]["worker"]), config["task"]["index"]
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = create_model()
        optimizer = model.optimizer
        optimizer.build(model.trainable_variables)
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        loss_metric = keras.metrics.Mean()
        accuracy = keras.metrics.SparseCategoricalAccuracy()

    def train(images: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            predicted = model(images, training=True)
            loss = loss_of(labels, predicted)
            share = loss / workers
        # The optimizer sums the gradients over the workers, all of them in one exchange.
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(share, variables), variables)
        loss_metric.update_state(loss)
        accuracy.update_state(labels, predicted)

    @tf.function
    def epoch(batches: tf.data.Iterator, steps: tf.Tensor) -> None:
        for _ in tf.range(steps):
            strategy.run(train, args=next(batches))

    batches = iter(own_batches(rank, workers))
    ends = []
    for number in range(epochs):
        epoch(batches, tf.constant(steps))
        print(number, float(loss_metric.result()), float(accuracy.result()))
        loss_metric.reset_state()
        accuracy.reset_state()
        ends.append(time.perf_counter())
    result.write_text(json.dumps(ends))


def own_batches(rank: int, workers: int) -> tf.data.Dataset:
    """Return batches of this worker's images, without an end: numbers are shuffled, not images."""
    with np.load(Path(os.environ["DATA"]) / "images.npz") as data:
        images = tf.constant(data["x"][rank::workers] / np.float32(255))
        labels = tf.constant(data["y"][rank::workers].astype(np.int64))
    numbers = tf.data.Dataset.range(len(images)).shuffle(len(images)).repeat()
    batches = numbers.batch(BATCH_SIZE, drop_remainder=True)
    picked = batches.map(lambda some: (tf.gather(images, some), tf.gather(labels, some)))
    return picked.prefetch(tf.data.AUTOTUNE)


if __name__ == "__main__":
    main()
