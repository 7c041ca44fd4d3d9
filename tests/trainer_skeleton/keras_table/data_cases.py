"""Data sets that use each method of `tf.data.Dataset`, for the `fit` of one model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from cases import BATCH, ONE_HOT, ROWS, Arrays, X, dense, logs_of, sgd, weights_of

if TYPE_CHECKING:
    from collections.abc import Callable

Dataset = tf.data.Dataset


def rows() -> tf.data.Dataset:
    return Dataset.from_tensor_slices((X, ONE_HOT))


def batches() -> tf.data.Dataset:
    return rows().batch(BATCH)


def double(x: tf.Tensor, y: tf.Tensor) -> Any:
    return 2 * x, y


def row(number: tf.Tensor) -> Any:
    return tf.gather(X, number), tf.gather(ONE_HOT, number)


def long_first(x: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
    return x[0] > -0.5


def own_folder() -> str:
    return tempfile.mkdtemp(prefix="table-")


def from_arrays(pairs: Any) -> tf.data.Dataset:
    x, y = (np.array(list(each)) for each in zip(*pairs, strict=True))
    return Dataset.from_tensor_slices((x, y)).batch(BATCH)


def by_label(size: int) -> dict[str, Any]:
    return {
        "key_func": lambda _, y: tf.argmax(y),
        "reduce_func": lambda _, group: group.batch(size),
        "window_size": size,
    }


def written_lines() -> str:
    """Write each row as a line, in five files; return their pattern."""
    folder = Path(own_folder())
    for number in range(5):
        lines = (" ".join(map(str, each)) for each in range_of(number))
        (folder / f"{number}.txt").write_text("\n".join(lines))
    return str(folder / "*.txt")


def range_of(number: int) -> np.ndarray:
    return np.hstack([X, ONE_HOT])[number * 10 : number * 10 + 10]


def parsed(line: tf.Tensor) -> Any:
    numbers = tf.strings.to_number(tf.strings.split(line), tf.float64)
    return tf.ensure_shape(numbers[:6], (6,)), tf.ensure_shape(numbers[6:], (3,))


def saved_and_loaded() -> tf.data.Dataset:
    folder = own_folder()
    rows().save(folder)
    return Dataset.load(folder).batch(BATCH)


def read_lines() -> tf.data.Dataset:
    files = Dataset.list_files(written_lines(), shuffle=False)
    return files.flat_map(tf.data.TextLineDataset).map(parsed).batch(BATCH)


def with_options() -> tf.data.Dataset:
    options = tf.data.Options()
    options.deterministic = True
    return batches().with_options(options)


def option_read() -> tf.data.Dataset:
    return batches().with_options(batches().options())


def scaled_by_reduced() -> tf.data.Dataset:
    total = rows().reduce(tf.zeros((), tf.float64), lambda old, each: old + tf.reduce_sum(each[0]))
    return rows().map(lambda x, y: (x / (1 + tf.abs(total)), y)).batch(BATCH)


def first_numbers(x: tf.Tensor, y: tf.Tensor) -> Any:
    """Cut a row to a length of its own."""
    return x[: 1 + tf.argmax(y)], y


def from_ragged(x: tf.RaggedTensor, y: tf.Tensor) -> Any:
    return tf.ensure_shape(x.to_tensor(shape=(None, 6)), (None, 6)), y


def padded() -> tf.data.Dataset:
    return rows().map(first_numbers).padded_batch(BATCH, ((6,), (3,)))


def bucketed() -> tf.data.Dataset:
    return rows().bucket_by_sequence_length(
        lambda _, y: tf.cast(tf.argmax(y), tf.int32), [1, 2], [BATCH, 8, 5]
    )


def halves() -> list[tf.data.Dataset]:
    return [rows().take(25), rows().skip(25)]


def windows() -> tf.data.Dataset:
    both = rows().window(BATCH)
    return both.flat_map(lambda x, y: Dataset.zip((x, y)).batch(BATCH))


def scan(state: tf.Tensor, each: Any) -> Any:
    x, y = each
    return state + 1, (x * tf.cast(state, tf.float64) / ROWS, y)


def unique_rows() -> tf.data.Dataset:
    return Dataset.range(2 * ROWS).map(lambda n: n // 2).unique().map(row).batch(BATCH)


def resampled() -> tf.data.Dataset:
    return (
        rows()
        .rejection_resample(
            lambda _, y: tf.argmax(y, output_type=tf.int32), [0.3, 0.3, 0.4], seed=1
        )
        .map(lambda _, each: each)
        .batch(BATCH)
    )


DATA: dict[str, Callable[[], Any]] = {
    "apply": lambda: rows().apply(lambda data: data.map(double)).batch(BATCH),
    "as_numpy_iterator": lambda: from_arrays(rows().as_numpy_iterator()),
    "batch": batches,
    "batch(drop_remainder=True)": lambda: rows().batch(BATCH, drop_remainder=True),
    "bucket_by_sequence_length": bucketed,
    "cache": lambda: rows().cache().batch(BATCH),
    "cache(filename)": lambda: rows().cache(f"{own_folder()}/rows").batch(BATCH),
    "cardinality": lambda: batches().repeat(int(batches().cardinality()) - 2),
    "choose_from_datasets": lambda: Dataset.choose_from_datasets(
        halves(), Dataset.range(2).repeat(25)
    ).batch(BATCH),
    "concatenate": lambda: halves()[1].concatenate(halves()[0]).batch(BATCH),
    "counter": lambda: Dataset.counter().take(ROWS).map(row).batch(BATCH),
    "element_spec": lambda: Dataset.from_generator(
        lambda: iter(zip(X, ONE_HOT, strict=True)), output_signature=rows().element_spec
    ).batch(BATCH),
    "enumerate": lambda: (
        rows()
        .enumerate()
        .map(lambda n, each: (each[0] * tf.cast(n, tf.float64) / ROWS, each[1]))
        .batch(BATCH)
    ),
    "filter": lambda: rows().filter(long_first).batch(8),
    "filter, batch(drop_remainder=True)": lambda: (
        rows().filter(long_first).batch(8, drop_remainder=True)
    ),
    "fingerprint": lambda: batches() if rows().fingerprint() is not None else None,
    "flat_map": lambda: (
        Dataset.range(5)
        .flat_map(lambda n: Dataset.range(n * 10, n * 10 + 10))
        .map(row)
        .batch(BATCH)
    ),
    "from_generator": lambda: Dataset.from_generator(
        lambda: iter(zip(X, ONE_HOT, strict=True)),
        output_signature=(tf.TensorSpec((6,), tf.float64), tf.TensorSpec((3,), tf.float64)),
    ).batch(BATCH),
    "from_tensor_slices": batches,
    "from_tensors": lambda: Dataset.from_tensors((X, ONE_HOT)),
    "get_single_element": lambda: Dataset.from_tensor_slices(
        rows().batch(ROWS).get_single_element()
    ).batch(BATCH),
    "group_by_window": lambda: rows().group_by_window(**by_label(8)),
    "ignore_errors": lambda: (
        rows()
        .map(
            lambda x, y: (
                tf.debugging.check_numerics(tf.where(x > 2, tf.constant(np.nan, x.dtype), x), "x"),
                y,
            )
        )
        .ignore_errors()
        .batch(8)
    ),
    "interleave": lambda: (
        Dataset.range(5)
        .interleave(lambda n: Dataset.range(n * 10, n * 10 + 10), cycle_length=3, block_length=2)
        .map(row)
        .batch(BATCH)
    ),
    "list_files": read_lines,
    "load": saved_and_loaded,
    "map": lambda: rows().map(double).batch(BATCH),
    "map(num_parallel_calls=AUTOTUNE)": lambda: (
        rows().map(double, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH)
    ),
    "options": option_read,
    "padded_batch": padded,
    "prefetch": lambda: batches().prefetch(2),
    "ragged_batch": lambda: rows().map(first_numbers).ragged_batch(BATCH).map(from_ragged),
    "random": lambda: (
        Dataset.zip((Dataset.random(seed=1), rows()))
        .map(lambda n, each: (each[0] * tf.cast(n % 7, tf.float64), each[1]))
        .batch(BATCH)
    ),
    "range": lambda: Dataset.range(ROWS).map(row).batch(BATCH),
    "rebatch": lambda: batches().rebatch(8),
    "reduce": scaled_by_reduced,
    "rejection_resample": resampled,
    "repeat": lambda: rows().repeat(2).batch(BATCH),
    "sample_from_datasets": lambda: Dataset.sample_from_datasets(halves(), seed=1).batch(BATCH),
    "save": saved_and_loaded,
    "scan": lambda: rows().scan(np.int64(0), scan).batch(BATCH),
    "shard": lambda: rows().shard(2, 1).batch(BATCH),
    "shuffle(seed)": lambda: rows().shuffle(20, seed=1).batch(BATCH),
    "shuffle": lambda: rows().shuffle(20).batch(BATCH),
    "skip": lambda: rows().skip(7).batch(BATCH),
    "snapshot": lambda: rows().snapshot(own_folder()).batch(BATCH),
    "take": lambda: rows().take(37).batch(BATCH),
    "take_while": lambda: rows().take_while(lambda x, _: x[0] < 2).batch(8),
    "unbatch": lambda: batches().unbatch().batch(8),
    "unique": unique_rows,
    "window": windows,
    "with_options": with_options,
    "zip": lambda: Dataset.zip((rows().map(lambda x, _: x), rows().map(lambda _, y: y))).batch(
        BATCH
    ),
}
"""By method, or by method and what it is called with."""

_models: list[keras.Model] = []


def train_on(name: str) -> Arrays:
    """Train one model again from its first weights, on the data set of this name."""
    if not _models:
        _models.append(dense())
        _models[0].compile(sgd(), "mse")
    model = _models[0]
    keras.utils.set_random_seed(3)
    model.set_weights(
        [np.random.default_rng(n).normal(size=w.shape) for n, w in enumerate(model.get_weights())]
    )
    history = model.fit(DATA[name](), epochs=2, verbose=0).history
    return weights_of(model) | logs_of(history)
