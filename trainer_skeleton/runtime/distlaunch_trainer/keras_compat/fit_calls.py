"""What ``fit``, ``evaluate`` and ``predict`` of Keras do with their arguments and models."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.saving import saving_lib
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils


def results_of(model: keras.Model, logs: Mapping[str, Any], *, return_dict: bool) -> Any:
    """Return logs as ``model.evaluate()`` does: a dict by name, a list, or one number."""
    if return_dict:
        return dict(sorted(logs.items()))
    return model._flatten_metrics_in_order(dict(logs))  # noqa: SLF001


def data_adapter(*arrays: Any, shuffle: bool = False, **options: Any) -> Any:
    """Return Keras's adapter of x, y and sample weights, with the other arguments of ``fit``."""
    shuffle = shuffle and not isinstance(arrays[0], tf.data.Dataset)  # without the warning
    return data_adapters.get_data_adapter(*arrays, shuffle=shuffle, **options)


def array_rows(adapter: Any) -> int | None:
    """Return the rows of arrays by Keras's adapter, None for other data."""
    try:
        has_partial_batch = adapter.has_partial_batch
    except NotImplementedError:  # generators and PyDatasets
        return None
    if has_partial_batch is None or adapter.num_batches is None:
        return None
    missing = adapter.batch_size - (adapter.partial_batch_size or adapter.batch_size)
    return int(adapter.num_batches * adapter.batch_size - missing)


def current_length(adapter: Any) -> int | None:
    """Return the batches of a PyDataset's next pass, None if it has no length, or of other data."""
    data = getattr(adapter, "py_dataset", None)
    return None if data is None else data.num_batches


def first_batch(adapter: Any) -> Any:
    """Return the first batch of a PyDataset or a generator by Keras's adapter, None of others."""
    if hasattr(adapter, "py_dataset"):
        return adapter.py_dataset[0]
    return next(iter(getattr(adapter, "_first_batches", ())), None)


def skip_epochs(adapter: Any, epochs: int, passes: int) -> None:
    """Have a PyDataset, and the random numbers that shuffle it, be as after some epochs."""
    data = getattr(adapter, "py_dataset", None)
    for number in range(max(epochs, passes) if data else 0):
        if number < epochs:
            data.on_epoch_begin()
        if number < passes and adapter.shuffle and data.num_batches is not None:
            random.shuffle([*range(data.num_batches)])  # as the adapter does for a pass
        if number < epochs:
            data.on_epoch_end()


def split_arrays(arguments: Mapping[str, Any]) -> tuple[tuple[Any, Any, Any], Any]:
    """Return x, y and sample weights of ``fit``, and its validation data or what is held out."""
    arrays = tuple(arguments[name] for name in ("x", "y", "sample_weight"))
    held_out, fraction = arguments["validation_data"], arguments["validation_split"]
    if fraction and held_out is None:
        return array_slicing.train_validation_split(arrays, validation_split=fraction)
    return arrays, held_out


def weights_of_classes(y: Any, sample_weight: Any, class_weight: Any) -> Any:
    """Return the weights of rows by those of their classes, if there are any of classes."""
    if class_weight is None:
        return sample_weight
    if sample_weight is not None:
        raise ValueError("sample_weight and class_weight cannot be given at the same time")
    return data_adapter_utils.class_weight_to_sample_weights(y, class_weight)


class _FirstReplica:
    """A strategy for Keras's ``predict``: this task's first replica has its result."""

    scope = nullcontext

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy

    def run(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        results = self._strategy.run(function, args)
        first = lambda value: self._strategy.experimental_local_results(value)[0]  # noqa: E731
        return keras.tree.map_structure(first, results)

    @staticmethod
    def experimental_distribute_dataset(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset


@contextmanager
def on_one_replica(model: keras.Model) -> Iterator[None]:
    """Have a model predict on this task's first replica in here, without other tasks."""
    theirs = model._distribute_strategy  # noqa: SLF001
    # By itself predict() gathers the results of all tasks, and here one predicts alone.
    model._distribute_strategy = _FirstReplica(model.distribute_strategy)  # noqa: SLF001
    try:
        yield
    finally:
        model._distribute_strategy = theirs  # noqa: SLF001


@contextmanager
def array_shuffle(permute: Callable[[np.ndarray], np.ndarray]) -> Iterator[None]:
    """Replace how data sets of arrays that are made in here shuffle their rows.

    `permute` is given the numbers of the rows in each epoch, and returns them in another order.
    """

    def shuffle(rows: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(permute, [rows], rows.dtype), rows.shape)

    original, tf.random.shuffle = tf.random.shuffle, shuffle
    try:
        yield
    finally:
        tf.random.shuffle = original


def save_without_collectives() -> None:
    """Let one task save and load alone; called before the default strategy is set.

    Keras makes an optimizer each time to list its attributes. With a strategy of several tasks,
    all of them must create its variables.
    """
    saving_lib.get_attr_skipset = cache(saving_lib.get_attr_skipset)
    saving_lib.get_attr_skipset("Optimizer")
