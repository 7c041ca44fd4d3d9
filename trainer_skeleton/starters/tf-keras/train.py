"""Train a network of tf_keras on several workers: `TF_USE_LEGACY_KERAS=1 python train.py`.

Each worker runs this script with its own TF_CONFIG, by `distlaunch local` and `distlaunch submit`
or on your own machines; without TF_CONFIG it is the only one.
"""

import argparse
import os
import pathlib
import tempfile

import tensorflow as tf

DATA = pathlib.Path(__file__).parent / "data"
FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}
BATCH_PER_WORKER = 32


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Turn a serialized example into an image (8, 8, 1), 0 ... 1, and its label."""
    example = tf.io.parse_single_example(record, FEATURES)
    pixels = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), (8, 8, 1))
    return tf.cast(pixels, tf.float32) / 16.0, example["label"]


def batches(split: str, batch_size: int) -> tf.data.Dataset:
    """Return the batches of all workers; `fit` gives each worker its rows."""
    files = sorted(map(str, DATA.glob(f"{split}-*.tfrecord")))
    examples = tf.data.TFRecordDataset(files).map(parse).cache()
    if split == "train":
        examples = examples.shuffle(2000, seed=1)
    # By rows: files are fewer than workers may be.
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return examples.batch(batch_size).with_options(options)


def create_model() -> tf.keras.Model:
    """Return a compiled model."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=tf.keras.optimizers.Adam(4e-3),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Return whether this task saves for all: the chief, or worker 0 if there is none."""
    resolver = strategy.cluster_resolver
    if resolver is None or not resolver.task_type:
        return True
    has_chief = "chief" in resolver.cluster_spec().jobs
    is_first_worker = resolver.task_type == "worker" and resolver.task_id == 0
    return resolver.task_type == "chief" or (is_first_worker and not has_chief)


def main() -> tf.keras.callbacks.History:
    """Train and save; return what `fit` returns."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--model", default="saved", help="folder to save into")
    options = parser.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    batch_size = BATCH_PER_WORKER * strategy.num_replicas_in_sync
    with strategy.scope():
        model = create_model()
    data = {split: batches(split, batch_size) for split in ("train", "validation")}
    callbacks = []
    if folder := os.environ.get("AIP_CHECKPOINT_DIR"):  # in the job folder, to resume from
        backup = tf.keras.callbacks.BackupAndRestore(folder, delete_checkpoint=False)
        callbacks = [backup]
    history = model.fit(
        data["train"],
        epochs=options.epochs,
        validation_data=data["validation"],
        callbacks=callbacks,
    )

    # All workers save, the chief alone to keep it.
    if is_chief(strategy):
        model.save(options.model)
    else:
        with tempfile.TemporaryDirectory() as folder:
            model.save(f"{folder}/{options.model}")
    return history


if __name__ == "__main__":
    main()
