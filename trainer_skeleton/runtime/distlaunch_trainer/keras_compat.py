"""Everything private to Keras that this package uses, each name in a function of its own.

Keras may change these names in any release; `check_version` refuses releases that were not tested,
and tests/trainer_skeleton/test_keras_compat.py tests each function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.symbolic_scope import SymbolicScope
from keras.src.losses import loss as keras_loss
from keras.src.optimizers import base_optimizer

from .errors import ModelError

SUPPORTED = "keras>=3.12,<3.16"

CALLBACK_STATE: dict[type[keras.callbacks.Callback], tuple[str, ...]] = {
    keras.callbacks.ModelCheckpoint: ("_batches_seen_since_last_saving", "_last_batch_seen"),
    keras.callbacks.TensorBoard: (
        "_global_train_batch",
        "_global_test_batch",
        "_previous_epoch_iterations",
    ),
}
"""Private attributes in which Keras's callbacks hold state from one epoch to the next."""

Reduce = Callable[..., tf.Tensor]
"""``(values, sample_weight, mask, reduction, dtype)`` to a loss, as Keras reduces values."""


def check_version() -> None:
    """Check that this version of Keras is supported.

    Raises
    ------
    ModelError
        If it is not.
    """
    least, most = (
        tuple(map(int, number.split("."))) for number in re.findall(r"\d+\.\d+", SUPPORTED)
    )
    version = tuple(int(part) for part in keras.__version__.split(".")[:2])
    if not least <= version < most:
        raise ModelError(
            f"Keras {keras.__version__} is not supported: install '{SUPPORTED}' "
            f"(requirements.txt sets the version)"
        )


def all_layers(layer: keras.Layer, *, include_self: bool = True) -> list[keras.Layer]:
    """Return the layers inside a layer or model at any depth, each once."""
    return list(layer._flatten_layers(include_self=include_self))  # noqa: SLF001


@contextmanager
def variable_creation() -> Iterator[None]:
    """Create the variables of layers, losses and metrics that are called in here; update none."""
    with keras.StatelessScope(), SymbolicScope():
        yield


def loss_tracker(model: keras.Model) -> keras.metrics.Metric | None:
    """Return the metric with the mean of the loss, None if the model has none."""
    return model._loss_tracker  # noqa: SLF001 - a metric of the user's may be named "loss" too


def output_loss_metrics(model: keras.Model) -> list[keras.metrics.Metric]:
    """Return the metrics with the mean loss of each of several outputs."""
    return list(model._compile_loss.metrics) if model._compile_loss else []  # noqa: SLF001


def own_losses(layer: keras.Layer) -> list[tf.Tensor]:
    """Return what the last call of a layer added to the loss, without its inner layers."""
    return list(layer._losses)  # noqa: SLF001


def own_non_trainable_variables(layer: keras.Layer) -> list[keras.Variable]:
    """Return the weights that a layer's call may change, without its inner layers and metrics."""
    return list(layer._non_trainable_variables)  # noqa: SLF001


def has_seed_generators(layer: keras.Layer) -> bool:
    """Return whether a layer has a generator of random numbers, without its inner layers."""
    return bool(getattr(layer, "_seed_generators", None))


def replace_moments(layer: keras.layers.BatchNormalization, wrap: Callable[[Any], Any]) -> None:
    """Replace a layer's function from inputs and mask to mean and variance of each channel.

    Parameters
    ----------
    layer
        A built layer.
    wrap
        Is given Keras's function, and returns the one to use.
    """
    layer._moments = wrap(layer._moments)  # noqa: SLF001 - an attribute of this layer alone


def disable_gradient_aggregation(optimizer: keras.optimizers.Optimizer) -> None:
    """Keep an optimizer from summing gradients over the replicas."""
    inner: Any = optimizer
    while inner is not None:
        inner._all_reduce_sum_gradients = list  # noqa: SLF001
        inner = getattr(inner, "inner_optimizer", None)


def replace_optimizer_operations(wrap: Callable[[Any], Any]) -> None:
    """Replace ``keras.ops`` in the base class of all optimizers."""
    base_optimizer.ops = wrap(base_optimizer.ops)


def optimizer_operations() -> Any:
    """Return what the base class of all optimizers uses as ``keras.ops``."""
    return base_optimizer.ops


def replace_loss_reduction(wrap: Callable[[Reduce], Reduce]) -> None:
    """Replace the function that reduces losses, and remove Keras's scaling by replicas.

    Keras divides means by the number of replicas, but not sums nor what `compute_loss` adds.
    """
    if not getattr(keras_loss.reduce_weighted_values, "is_replaced", False):
        reduce: Any = wrap(keras_loss.reduce_weighted_values)
        reduce.is_replaced = True
        keras_loss.reduce_weighted_values = reduce
        keras_loss.scale_loss_for_distribution = lambda value: value
        keras_loss.unscale_loss_for_distribution = lambda value: value


def apply_mask(sample_weight: tf.Tensor, mask: Any, dtype: Any, reduction: str) -> tf.Tensor:
    """Return sample weights, multiplied by a mask as Keras's losses do."""
    return keras_loss.apply_mask(sample_weight, mask, dtype, reduction)


def traces_batches(callback: keras.callbacks.TensorBoard) -> bool:
    """Return whether TensorBoard profiles batches."""
    return bool(callback._should_trace)  # noqa: SLF001


def allow_float(variables: Sequence[keras.Variable]) -> None:
    """Let ``float(variable)`` read distributed variables, as it reads others."""
    for variable in variables:
        kind: Any = type(variable.value)
        if not hasattr(kind, "__float__"):
            kind.__float__ = lambda value: float(value.numpy())
