"""What one replica's loss is of the loss of the whole global batch.

A replica has ``rows`` of the ``global_rows`` rows of a step. Keras gives it the loss of its own
rows; what all replicas have to sum up to is the loss that one worker would have. Two kinds of
parts are distinguished:

- a mean over the rows counts by ``rows / global_rows``, and with it what is the same on every
  replica, as the regularisers of weights are. Keras's losses that are no such mean (sums over the
  rows; means over the time steps that a mask lets through, or over sample weights) are made to look
  like one as Keras reduces them;
- regularisers of activities are sums over the rows in some versions of Keras.

A loss with one number a row (reduction ``"none"``) is summed by the gradient, as under ``fit``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import keras
import tensorflow as tf

from . import keras_compat


@dataclass(frozen=True)
class StepRows:
    """What of a step this replica has.

    Attributes
    ----------
    own, total
        This replica's rows, and those of all replicas (scalars, int64).
    replicas
        Number of replicas.
    """

    own: tf.Tensor
    total: tf.Tensor
    replicas: int

    def part(self, dtype: Any) -> tf.Tensor:
        """Return this replica's part of the rows, 0 … 1."""
        return tf.cast(self.own, dtype) / tf.cast(self.total, dtype)

    def here(self, dtype: Any) -> tf.Tensor:
        """Return 1, or 0 where this replica has no row but one that does not count."""
        return tf.cast(self.own > 0, dtype)


@dataclass(frozen=True)
class LossShare:
    """A replica's share of a step's loss.

    Attributes
    ----------
    objective
        What is differentiated: summed over the replicas, what one worker would differentiate.
    reported
        What is reported: summed over the replicas, the loss that one worker would report.
    """

    objective: tf.Tensor
    reported: tf.Tensor


class Losses:
    """The shares that the replicas have in a model's loss.

    Parameters
    ----------
    model
        A compiled model, built.
    """

    def __init__(self, model: keras.Model) -> None:
        keras_compat.replace_loss_reduction(_as_mean)
        self._model = model
        self._sums_activity = _sums_activity()
        self._takes_training = "training" in signature(model.compute_loss).parameters

    def share(
        self, x: Any, y: Any, predicted: Any, weights: Any, rows: StepRows, *, training: bool
    ) -> LossShare:
        """Return this replica's share of the global batch's loss."""
        # Keras before 3.3 had no `training`, and neither have models written for it.
        options = {"training": training} if self._takes_training else {}
        with _reducing(rows):
            loss = self._model.compute_loss(x, y, predicted, weights, **options)
        if loss.shape.rank:
            return _share_by_row(loss, rows)
        summed = self._summed(loss.dtype)
        share = (loss - summed) * rows.part(loss.dtype) + summed * rows.here(loss.dtype)
        return LossShare(share, share)

    def _summed(self, dtype: Any) -> Any:
        """Return what is a sum over this replica's rows."""
        return _total(_activity_losses(self._model), dtype) if self._sums_activity else 0.0


def loss_counters(model: keras.Model) -> list[Any]:
    """Return where Keras follows the losses of several outputs, one count a step and replica."""
    metrics = keras_compat.output_loss_metrics(model)
    return [variable for metric in metrics for variable in metric.variables]


def _share_by_row(loss: tf.Tensor, rows: StepRows) -> LossShare:
    """Return the share in a loss that is not reduced: its sum, and the mean that is reported.

    Keras takes no regularisers beside such a loss.
    """
    objective = tf.reduce_sum(loss) * rows.here(loss.dtype)
    a_row = tf.size(loss, tf.int64) // tf.shape(loss, tf.int64)[0]
    return LossShare(objective, objective / tf.cast(rows.total * a_row, loss.dtype))


def _total(losses: list[Any], dtype: Any) -> Any:
    return tf.cast(tf.add_n(losses), dtype) if losses else 0.0


def _activity_losses(model: keras.Model) -> list[Any]:
    layers = keras_compat.all_layers(model)
    layers = [layer for layer in layers if getattr(layer, "activity_regularizer", None)]
    return [loss for layer in layers for loss in keras_compat.own_losses(layer)]


def _sums_activity() -> bool:
    """Return whether activity regularisers sum over the rows, as in Keras 3.12 and before."""
    layer = keras.layers.Identity(activity_regularizer="l2")
    layer(tf.ones((1, 1)))
    (of_one,) = layer.losses
    layer(tf.ones((2, 1)))
    (of_two,) = layer.losses
    return bool(of_two > of_one)


_now = threading.local()  # a replica is traced in a thread of its own


@contextmanager
def _reducing(rows: StepRows) -> Iterator[None]:
    """Have Keras's losses, reduced in here, look like means over ``rows``."""
    _now.rows = rows
    try:
        yield
    finally:
        _now.rows = None


def _as_mean(reduce: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Return Keras's function that reduces a loss, with what is no mean over rows made one."""

    def reduced(
        values: Any,
        sample_weight: Any = None,
        mask: Any = None,
        reduction: str | None = "sum_over_batch_size",
        dtype: Any = None,
    ) -> tf.Tensor:
        value = reduce(values, sample_weight, mask, reduction, dtype)
        rows = getattr(_now, "rows", None)
        if rows is None or reduction in {None, "none"}:
            return value
        if reduction == "sum":
            return tf.math.divide_no_nan(value, rows.part(value.dtype))
        divisor = _divisor(sample_weight, mask, reduction, value.dtype)
        if divisor is None or rows.replicas == 1:
            return value
        divisor *= rows.here(value.dtype)
        context = tf.distribute.get_replica_context()
        everywhere = context.all_reduce(tf.distribute.ReduceOp.SUM, divisor)
        part = tf.math.divide_no_nan(divisor, everywhere)
        return value * tf.math.divide_no_nan(part, rows.part(value.dtype))

    return reduced


def _divisor(sample_weight: Any, mask: Any, reduction: str, dtype: Any) -> tf.Tensor | None:
    """Return what Keras has divided a replica's sum by, or None where it was the rows."""
    if reduction == "mean_with_sample_weight" and sample_weight is not None:
        weights = keras_compat.apply_mask(tf.cast(sample_weight, dtype), mask, dtype, reduction)
        return tf.reduce_sum(tf.cast(weights, dtype))
    return None if mask is None else tf.reduce_sum(tf.cast(mask, dtype))
