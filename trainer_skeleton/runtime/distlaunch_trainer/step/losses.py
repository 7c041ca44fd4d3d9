"""A replica's share of the loss of the global batch.

A replica has ``local_rows`` of the ``global_rows`` rows of a step. Keras computes the loss of the
local rows; the shares of all replicas must sum to the loss that one worker would have:

- A mean over the rows is multiplied by ``local_rows / global_rows``, with terms that are equal on
  all replicas, such as the regularizers of weights. Keras's losses that are no means over the rows
  (sums; means over unmasked time steps or over sample weights) are rescaled where Keras reduces
  them, so that the same factor is right.
- A loss of ``add_loss()`` that is a sum over the rows is rescaled likewise, where Keras adds it.
- Activity regularizers are sums over the rows in some versions of Keras.

The divisor of a masked loss is known when all replicas have counted. A model with one such loss
differentiates its sum, and gradients are divided after they are exchanged. With several, or with
other terms that depend on the data, each divisor is all-reduced in the middle of the step.

A loss with one number per row (reduction ``"none"``) is summed by the gradient, as under ``fit``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from inspect import signature
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat

from . import step_context
from .all_reduce import sum_over_replicas
from .row_sums import is_row_sum, sums_rows
from .step_context import LossReduction, StepRows

_WEIGHTED_MEAN = "mean_with_sample_weight"
_MEANS = {"sum_over_batch_size", "mean", _WEIGHTED_MEAN}


@dataclass(frozen=True)
class LossShare:
    """A replica's share of a step's loss."""

    loss_to_differentiate: tf.Tensor  # summed over the replicas, as one worker would
    loss_to_report: tf.Tensor  # likewise
    # If not None, both sums have still to be divided by the sum of this over the replicas, and
    # contain no weight regularizers.
    divisor: tf.Tensor | None = None


class Losses:
    """Computes a replica's share of a model's loss."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model  # compiled and built
        self._sums_activity = bool(_regularized_layers(model)) and _sums_activity()
        self._takes_training = "training" in signature(model.compute_loss).parameters

    def outputs(self, x: Any, rows: StepRows, *, training: bool) -> Any:
        """Return the model's outputs; a loss in a layer's call is a mean over the step's rows."""
        with normalize_globally(rows):
            return self._model(x, training=training)

    def share(
        self,
        x: Any,
        y: Any,
        predicted: Any,
        weights: Any,
        rows: StepRows,
        *,
        training: bool,
        may_divide_later: bool = False,
    ) -> LossShare:
        """Return this replica's share of the global batch's loss.

        With `may_divide_later` the caller divides gradients by the sum of `LossShare.divisor` if it
        is set.
        """
        if may_divide_later and self._may_divide_later(y, predicted, weights, rows):
            with suppress(_SeveralReductionsError):
                return self._undivided(y, predicted, weights, rows)
        # Models written for Keras before 3.3 have no `training`.
        options = {"training": training} if self._takes_training else {}
        known = _activity_losses(self._model) if self._sums_activity else []
        with normalize_globally(rows, known_sums=known):
            loss = self._model.compute_loss(x, y, predicted, weights, **options)
        if loss.shape.rank:
            return _share_of_rows(loss, rows)
        summed = self._summed(loss.dtype)
        share = (loss - summed) * rows.local_fraction(loss.dtype) + summed * rows.is_nonempty(
            loss.dtype
        )
        return LossShare(share, share)

    def regularizers(self) -> tf.Tensor | None:
        """Return the sum of the regularizers of weights, None if there are none."""
        losses = [tf.cast(loss, keras.config.floatx()) for loss in self._model.losses]
        return tf.add_n(losses) if losses else None

    def _may_divide_later(self, y: Any, predicted: Any, weights: Any, rows: StepRows) -> bool:
        """Return whether a divisor of one loss is all that depends on the other replicas."""
        loss = keras_compat.only_loss(self._model)
        if (
            loss is None
            or rows.replicas == 1
            or type(loss).__call__ is not keras.losses.Loss.__call__
            or type(self._model).compute_loss is not keras.Model.compute_loss
            or tf.nest.is_nested(y)
            or tf.nest.is_nested(predicted)
            or any(keras_compat.own_losses(layer) for layer in keras_compat.all_layers(self._model))
        ):
            return False
        is_masked = keras_compat.mask_of(predicted) is not None and loss.reduction in _MEANS
        return is_masked or (loss.reduction == _WEIGHTED_MEAN and weights is not None)

    def _undivided(self, y: Any, predicted: Any, weights: Any, rows: StepRows) -> LossShare:
        """Return the sum of this replica's losses, per row of the global batch, and its divisor."""
        with normalize_globally(rows, divide_later=True) as divisors:
            value = keras_compat.compiled_loss(self._model, y, predicted, weights)
        (divisor,) = divisors
        divisor = tf.cast(divisor, value.dtype) / tf.cast(rows.global_rows, value.dtype)
        return LossShare(value * divisor, value * divisor, divisor)

    def _summed(self, dtype: Any) -> Any:
        """Return the part of the loss that is a sum over this replica's rows."""
        losses = _activity_losses(self._model) if self._sums_activity else []
        return tf.cast(tf.add_n(losses), dtype) if losses else 0.0


def _share_of_rows(loss: tf.Tensor, rows: StepRows) -> LossShare:
    """Return the share of a loss that is not reduced: its sum, and the mean to report.

    Keras adds no regularizers to such a loss.
    """
    loss_to_differentiate = tf.reduce_sum(loss) * rows.is_nonempty(loss.dtype)
    a_row = tf.size(loss, tf.int64) // tf.shape(loss, tf.int64)[0]
    return LossShare(
        loss_to_differentiate, loss_to_differentiate / tf.cast(rows.global_rows * a_row, loss.dtype)
    )


def _activity_losses(model: keras.Model) -> list[Any]:
    layers = _regularized_layers(model)
    return [loss for layer in layers for loss in keras_compat.own_losses(layer)]


def _regularized_layers(model: keras.Model) -> list[Any]:
    """Return the layers with activity regularizers."""
    layers = keras_compat.all_layers(model)
    return [layer for layer in layers if getattr(layer, "activity_regularizer", None)]


def _sums_activity() -> bool:
    """Return whether activity regularizers sum over the rows, as in Keras 3.12 and before."""
    layer = keras.layers.Identity(activity_regularizer="l2", name="probe")
    layer(tf.ones((1, 1)))
    (of_one,) = layer.losses
    layer(tf.ones((2, 1)))
    (of_two,) = layer.losses
    return bool(of_two > of_one)


class _SeveralReductionsError(Exception):
    """A loss consists of several, which have divisors of their own."""


@contextmanager
def normalize_globally(
    rows: StepRows, *, divide_later: bool = False, known_sums: Sequence[Any] = ()
) -> Iterator[list[tf.Tensor]]:
    """Rescale Keras's losses, reduced in here, so that they are means over ``rows``.

    With `divide_later` a loss with a divisor is not rescaled, and the list gets this replica's
    divisor. `known_sums` are losses of ``add_loss()`` over the rows, which the caller rescales.
    """
    keras_compat.replace_loss_reduction(_globally_normalized, lambda: normalized_rows() is not None)
    keras_compat.replace_added_losses(_added)
    divisors: list[tf.Tensor] = []
    reduction = LossReduction(known_sums, divisors if divide_later else None)
    with step_context.extended(rows=rows, losses=reduction):
        yield divisors


def normalized_rows() -> StepRows | None:
    """Return the rows that losses are made means over, None if Keras's are left as they are."""
    context = step_context.current()
    return context.rows if context.losses else None


def _added(loss: Any) -> Any:
    """Return a loss of ``add_loss()``, rescaled to a mean over the rows if it is a sum of them."""
    rows, reduction = normalized_rows(), step_context.current().losses
    is_known = reduction is None or any(loss is other for other in reduction.known_sums)
    if is_known or not tf.is_symbolic_tensor(loss) or not sums_rows(loss):
        return loss
    if loss.shape.rank or is_row_sum(loss):
        return tf.math.divide_no_nan(loss, rows.local_fraction(loss.dtype))
    if rows.replicas > 1:
        warnings.warn(
            f"add_loss() is given {loss.name}, which adds a sum over the rows to another term: the "
            f"weights depend on the number of replicas; call it once for each, or use means",
            stacklevel=2,
        )
    return loss


def _globally_normalized(reduce: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Return Keras's function that reduces a loss, rescaled to a mean over the rows."""

    def reduced(
        values: Any,
        sample_weight: Any = None,
        mask: Any = None,
        reduction: str | None = "sum_over_batch_size",
        dtype: Any = None,
    ) -> tf.Tensor:
        value = reduce(values, sample_weight, mask, reduction, dtype)
        rows = normalized_rows()
        if rows is None or reduction in {None, "none"}:
            return value
        if reduction == "sum":
            return tf.math.divide_no_nan(value, rows.local_fraction(value.dtype))
        divisor = _divisor(sample_weight, mask, reduction, value.dtype)
        if divisor is None or rows.replicas == 1:
            return value
        divisor *= rows.is_nonempty(value.dtype)
        divisors = step_context.current().losses.divisors
        if divisors is not None:
            if divisors:
                raise _SeveralReductionsError
            divisors.append(divisor)
            return value
        (global_divisor,) = sum_over_replicas([divisor])
        fraction = tf.math.divide_no_nan(divisor, global_divisor)
        return value * tf.math.divide_no_nan(fraction, rows.local_fraction(value.dtype))

    return reduced


def _divisor(sample_weight: Any, mask: Any, reduction: str, dtype: Any) -> tf.Tensor | None:
    """Return the number that Keras divided a replica's sum by, None if it was the rows."""
    if reduction == _WEIGHTED_MEAN and sample_weight is not None:
        weights = keras_compat.apply_mask(tf.cast(sample_weight, dtype), mask, dtype, reduction)
        return tf.reduce_sum(tf.cast(weights, dtype))
    return None if mask is None else tf.reduce_sum(tf.cast(mask, dtype))
