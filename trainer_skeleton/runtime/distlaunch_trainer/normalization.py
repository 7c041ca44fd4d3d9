"""Batch normalisation on several replicas: statistics of the whole batch, averages that agree.

Under ``fit`` each replica normalises by the statistics of its own rows. A layer made with
``synchronized=True``, and each one with ``--sync-batch-norm``, takes them from the rows of all
replicas, so that it does what it would do on one. The moments are sums over the replicas of
(x - c) and (x - c)²; for c the layer's moving mean is taken, which all replicas have alike, as the
difference of two large numbers would lose digits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from . import keras_compat

_Moments = Callable[..., tuple[tf.Tensor, tf.Tensor]]


class BatchNormalizations:
    """The batch normalisations of a model that are trained.

    Parameters
    ----------
    model
        A built model.
    replicas
        Number of replicas.
    synchronize
        Whether layers are synchronized that were not made so.
    """

    def __init__(self, model: keras.Model, replicas: int, *, synchronize: bool = False) -> None:
        self._now = threading.local()  # a replica is traced in a thread of its own
        layers = _layers(model) if replicas > 1 else []
        self.synchronized = [each for each in layers if synchronize or each.synchronized]
        self.apart = [each for each in layers if each not in self.synchronized]
        for layer in self.synchronized:
            keras_compat.replace_moments(layer, partial(self._moments_of, layer))

    @property
    def averages(self) -> list[Any]:
        """The averages that each replica keeps of its own rows, and that have to agree."""
        return [variable for layer in self.apart for variable in layer.non_trainable_variables]

    @contextmanager
    def counting(self, rows: tf.Tensor) -> Iterator[None]:
        """Count what a replica passes through the layers in here, unless ``rows`` is 0."""
        self._now.rows = rows
        try:
            yield
        finally:
            self._now.rows = None

    def _moments_of(self, layer: Any, alone: _Moments) -> _Moments:
        def moments(inputs: tf.Tensor, mask: Any) -> tuple[tf.Tensor, tf.Tensor]:
            rows = getattr(self._now, "rows", None)
            context = tf.distribute.get_replica_context()
            if rows is None or context is None:  # as Keras saves or builds the model
                return alone(inputs, mask)
            return _moments_over_replicas(layer, inputs, mask, rows, context)

        return moments


def differences(model: keras.Model, replicas: int, *, synchronized: bool) -> list[str]:
    """Say which layers have a model trained otherwise by several replicas than by one."""
    if replicas == 1:
        return []
    notes = []
    random = [layer.name for layer in keras_compat.all_layers(model) if _draws(layer)]
    if random:
        notes.append(
            f"the layers {', '.join(random)} draw random numbers as they train, and other ones on "
            f"another number of replicas: so will the weights differ"
        )
    apart = [layer.name for layer in _layers(model) if not (synchronized or layer.synchronized)]
    if apart:
        notes.append(
            f"the layers {', '.join(apart)} normalise each replica's rows by themselves, so the "
            f"weights differ with the number of replicas; --sync-batch-norm has them see all rows"
        )
    return notes


def _draws(layer: Any) -> bool:
    """Return whether a layer has a generator of random numbers that it uses."""
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
    layer: Any, inputs: tf.Tensor, mask: Any, rows: tf.Tensor, context: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return mean and variance of each channel over the rows of all replicas."""
    channels, rank = inputs.shape[layer.axis], inputs.shape.rank
    axes = [axis for axis in range(rank) if axis != layer.axis % rank]
    shape = [1] * rank
    shape[layer.axis] = channels
    origin = tf.stop_gradient(tf.reshape(tf.cast(layer.moving_mean.value, inputs.dtype), shape))
    counted = tf.cast(rows > 0, inputs.dtype)
    weights = tf.ones_like(inputs[..., :1]) if mask is None else mask[..., tf.newaxis]
    weights = tf.broadcast_to(tf.cast(weights, inputs.dtype), tf.shape(inputs)) * counted
    distances = tf.where(weights > 0, inputs - origin, 0)
    sums = tf.stack(
        [tf.reduce_sum(part, axes) for part in (weights, distances, tf.square(distances))]
    )
    count, first, second = tf.unstack(context.all_reduce(tf.distribute.ReduceOp.SUM, sums))
    count += 0 if mask is None else keras.config.epsilon()  # as Keras's own
    shift = tf.math.divide_no_nan(first, count)
    variance = tf.math.divide_no_nan(second, count) - tf.square(shift)
    return tf.reshape(origin, [channels]) + shift, tf.maximum(variance, 0)
