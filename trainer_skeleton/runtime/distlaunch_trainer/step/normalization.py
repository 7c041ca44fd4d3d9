"""Batch normalization on several replicas: synchronized layers, and moving statistics.

Under ``fit`` each replica normalizes by the statistics of its rows. A layer made with
``synchronized=True``, and each one with ``--sync-batch-norm``, takes them from the rows of all
replicas, as it would on one. The moments are all-reduced sums of (x - c) and (x - c)², where c is
the layer's moving mean, equal on all replicas: without c, the variance would be a difference of two
large numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.keras_compat import keras_random

from . import step_context
from .all_reduce import sum_over_replicas
from .step_context import StepRows

_Moments = Callable[..., tuple[tf.Tensor, tf.Tensor]]


class BatchNormalizations:
    """The batch normalizations of a model that are trained."""

    def __init__(self, model: keras.Model, replicas: int, *, synchronize: bool = False) -> None:
        layers = _layers(model) if replicas > 1 else []
        self.synchronized = [layer for layer in layers if synchronize or layer.synchronized]
        self.unsynchronized = [layer for layer in layers if layer not in self.synchronized]
        for layer in self.synchronized:
            keras_compat.replace_moments(layer, partial(moments_of, layer))

    @property
    def moving_statistics(self) -> list[Any]:
        """The moving statistics that each replica updates by its rows, and that have to agree."""
        return [
            variable for layer in self.unsynchronized for variable in layer.non_trainable_variables
        ]


def moments_of(layer: Any, alone: _Moments) -> _Moments:
    """Return the function for a layer's moments over all replicas, by Keras's own over one."""

    def moments(inputs: tf.Tensor, mask: Any) -> tuple[tf.Tensor, tf.Tensor]:
        context = step_context.current()
        is_outside = context.simulated is None and tf.distribute.in_cross_replica_context()
        if context.rows is None or is_outside:
            return alone(inputs, mask)  # as Keras saves or builds the model
        return _moments_over_replicas(layer, inputs, mask, context.rows)

    return moments


def replica_count_warnings(model: keras.Model, replicas: int, *, synchronized: bool) -> list[str]:
    """Return warnings about layers by which the weights depend on the number of replicas.

    The model may be built or not. `synchronized`: all batch normalizations take their statistics
    from all replicas.
    """
    if replicas == 1:
        return []
    notes = []
    random = [layer.name for layer in keras_compat.all_layers(model) if _draws(layer)]
    if random and not keras_random.is_same():
        notes.append(
            f"the layers {', '.join(random)} draw random numbers, each replica its own, so the "
            f"weights depend on the number of replicas; --same-random draws those of one worker"
        )
    unsynchronized = [
        layer.name for layer in _layers(model) if not (synchronized or layer.synchronized)
    ]
    if unsynchronized:
        notes.append(
            f"the layers {', '.join(unsynchronized)} normalize by the rows of one replica, so the "
            f"weights depend on the number of replicas; --sync-batch-norm uses all rows"
        )
    return notes


def _draws(layer: Any) -> bool:
    """Return whether a layer draws random numbers in training."""
    if not keras_compat.has_seed_generators(layer):
        return False
    rates = [getattr(layer, name, None) for name in ("rate", "dropout", "recurrent_dropout")]
    known = [rate for rate in rates if isinstance(rate, (int, float))]
    return not known or any(known)


def _layers(model: keras.Model) -> list[Any]:
    layers = keras_compat.all_layers(model, include_self=False)
    kind = keras.layers.BatchNormalization
    return [layer for layer in layers if isinstance(layer, kind) and layer.trainable]


def _moments_over_replicas(
    layer: Any, inputs: tf.Tensor, mask: Any, rows: StepRows
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return mean and variance of each channel over the rows of all replicas."""
    channels, rank = inputs.shape[layer.axis], inputs.shape.rank
    axes = [axis for axis in range(rank) if axis != layer.axis % rank]
    shape = [1] * rank
    shape[layer.axis] = channels
    origin = tf.stop_gradient(tf.reshape(tf.cast(layer.moving_mean.value, inputs.dtype), shape))
    if mask is None:  # backpropagation keeps nothing of the size of the inputs but them
        number = tf.cast(tf.size(inputs) // channels, inputs.dtype)
        parts = inputs - origin, tf.math.squared_difference(inputs, origin)
        sums = tf.stack([tf.fill([channels], number), *(tf.reduce_sum(p, axes) for p in parts)])
    else:
        weights = tf.cast(mask[..., tf.newaxis], inputs.dtype)
        weights = tf.broadcast_to(weights, tf.shape(inputs))
        distances = tf.where(weights > 0, inputs - origin, 0)
        parts = weights, distances, tf.square(distances)
        sums = tf.stack([tf.reduce_sum(part, axes) for part in parts])
    sums = tf.where(rows.local_rows > 0, sums, 0)
    if step_context.current().weighs_gradients:
        sums = _sum_for_weighted_gradients(sums, rows.local_fraction(sums.dtype))
    else:
        (sums,) = sum_over_replicas([sums])
    count, first, second = tf.unstack(sums)
    count += 0 if mask is None else keras.config.epsilon()  # as Keras's own
    shift = tf.math.divide_no_nan(first, count)
    # Rounding may make it negative, and its root NaN.
    variance = tf.math.divide_no_nan(second, count) - tf.square(shift)
    return tf.reshape(origin, [channels]) + shift, tf.maximum(variance, 0)


def _sum_for_weighted_gradients(value: tf.Tensor, fraction: tf.Tensor) -> tf.Tensor:
    """Return a sum over the replicas, whose gradients are multiplied by ``fraction`` afterwards.

    What the loss of replica r passes back to replica s is to count for the fraction of r, and is
    multiplied by that of s later.
    """

    @tf.custom_gradient
    def total(own: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            part = tf.where(fraction > 0, upstream * fraction, 0)  # a placeholder's may be NaN
            return tf.math.divide_no_nan(sum_over_replicas([part])[0], fraction)

        return sum_over_replicas([own])[0], gradient

    return total(value)
