"""What ``fit``, ``evaluate`` and ``predict`` of Keras do with their arguments and models."""

from __future__ import annotations

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


def tensor_spec(batches: list[Any]) -> Any:
    """Return the type of batches of tensors, with None for their rows and for sizes that differ."""
    return data_adapter_utils.get_tensor_spec(batches)


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
def on_one_replica(model: keras.Model) -> Iterator[keras.Model]:
    """Have a model predict on this task's first replica in here, without other tasks."""
    theirs = model._distribute_strategy  # noqa: SLF001
    # By itself predict() gathers the results of all tasks, and here one predicts alone.
    model._distribute_strategy = _FirstReplica(model.distribute_strategy)  # noqa: SLF001
    try:
        yield model
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
