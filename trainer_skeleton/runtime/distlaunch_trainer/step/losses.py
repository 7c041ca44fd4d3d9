"""A replica's share of the loss of the global batch.

A replica has ``local_rows`` of the ``global_rows`` rows of a step. Keras computes the loss of the
local rows; the shares of all replicas must sum to the loss that one worker would have:

- A mean over the rows is multiplied by ``local_rows / global_rows``, with terms that are equal on
  all replicas, such as the regularizers of weights. Keras's losses that are no means over the rows
  (sums; means over unmasked time steps or over sample weights) are rescaled where Keras reduces
  them, so that the same factor is right.
- A loss of ``add_loss()`` that is a sum over the rows is rescaled likewise, where it is added. So
  are activity regularizers in some versions of Keras. ``additivity`` finds these losses.
- A compiled loss that is neither, such as ``Dice()``, is computed from the rows of all replicas.

The divisor of a masked loss is known when all replicas have counted. A model with one such loss
differentiates its sum, and gradients are divided after they are exchanged. With several, or with
other terms that depend on the data, each divisor is all-reduced in the middle of the step.

A loss with one number per row (reduction ``"none"``) is summed by the gradient, as under ``fit``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.task.explain import project_path

from . import step_context
from .all_reduce import sum_over_replicas
from .gathered_rows import gather_rows
from .step_context import StepRows

_WEIGHTED_MEAN = "mean_with_sample_weight"
_MEANS = {"sum_over_batch_size", "mean", _WEIGHTED_MEAN}

added_sums: WeakKeyDictionary[keras.Layer, dict[str, bool]] = WeakKeyDictionary()
"""Whether the losses that a layer adds, by file and line of the calls, are sums over the rows."""

own_sums: WeakKeyDictionary[keras.Model, bool] = WeakKeyDictionary()
"""Whether a model's own ``compute_loss()`` is a sum over the rows."""


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
            share = self._undivided(y, predicted, weights, rows)
            if share is not None:
                return share
        # Models written for Keras before 3.3 have no `training`.
        options = {"training": training} if self._takes_training else {}
        with normalize_globally(rows):
            loss = self._model.compute_loss(x, y, predicted, weights, **options)
        if loss.shape.rank:
            return _share_of_rows(loss, rows)
        is_sum = own_sums.get(self._model, False)
        share = loss * (rows.is_nonempty if is_sum else rows.local_fraction)(loss.dtype)
        return LossShare(share, share)

    def regularizers(self) -> tf.Tensor | None:
        """Return the sum of the regularizers of weights, None if there are none."""
        losses = [tf.cast(loss, keras.config.floatx()) for loss in self._model.losses]
        return tf.add_n(losses) if losses else None

    def _may_divide_later(self, y: Any, predicted: Any, weights: Any, rows: StepRows) -> bool:
        """Return whether a divisor of one loss is all that depends on the other replicas."""
        loss = keras_compat.only_loss(self._model)
        if isinstance(loss, ReplicaLoss):
            loss = None if loss.gathers_rows else loss.loss
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

    def _undivided(self, y: Any, predicted: Any, weights: Any, rows: StepRows) -> LossShare | None:
        """Return the sum of this replica's losses, per row of the global batch, and its divisor.

        None if the loss consists of several, which have divisors of their own.
        """
        with normalize_globally(rows, divide_later=True) as divisors:
            value = keras_compat.compiled_loss(self._model, y, predicted, weights)
        if len(divisors) > 1:
            return None
        divisor = tf.cast(divisors[0], value.dtype) / tf.cast(rows.global_rows, value.dtype)
        return LossShare(value * divisor, value * divisor, divisor)


def _share_of_rows(loss: tf.Tensor, rows: StepRows) -> LossShare:
    """Return the share of a loss that is not reduced: its sum, and the mean to report.

    Keras adds no regularizers to such a loss.
    """
    loss_to_differentiate = tf.reduce_sum(loss) * rows.is_nonempty(loss.dtype)
    a_row = tf.size(loss, tf.int64) // tf.shape(loss, tf.int64)[0]
    return LossShare(
        loss_to_differentiate, loss_to_differentiate / tf.cast(rows.global_rows * a_row, loss.dtype)
    )


class ReplicaLoss:
    """A compiled loss on several replicas: of a replica's rows, or of all rows on each replica."""

    def __init__(self, loss: keras.losses.Loss) -> None:
        self.loss = loss
        self.gathers_rows = False

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        data = y_true, y_pred, sample_weight
        simulated = step_context.current().simulated
        before = len(simulated.assigned) if simulated else 0
        try:
            value = self._of_own_or_all_rows(*data)
        except Exception:
            if simulated is None:
                raise
            value = None  # e.g. of pairs of rows, and their number is odd
        if simulated:
            assigned = [variable for variable, _ in simulated.assigned[before:]]
            simulated.losses.setdefault(self, []).append((value, data, assigned))
        return tf.reduce_sum(0 * tf.nest.flatten(y_pred)[0]) if value is None else value

    def _of_own_or_all_rows(self, *data: Any) -> tf.Tensor:
        rows = normalized_rows()
        is_of_all = self.gathers_rows and rows is not None and rows.replicas > 1
        return self._of_all_rows(rows, *data) if is_of_all else self.loss(*data)

    def _of_all_rows(self, rows: Any, y_true: Any, y_pred: Any, sample_weight: Any) -> tf.Tensor:
        # As Keras casts them; so all are exchanged at once.
        targets = tf.nest.map_structure(lambda y: tf.cast(y, self.loss.dtype), y_true)
        own = targets, y_pred, sample_weight, keras_compat.mask_of(y_pred)
        targets, outputs, weights, mask = gather_rows(own, rows)
        if mask is not None:
            keras_compat.set_mask(outputs, mask)
        whole = StepRows(rows.global_rows, rows.global_rows, 1, may_be_empty=False)
        with step_context.extended(rows=whole, divisors=None):
            loss = self.loss(targets, outputs, weights)
        # What is not reduced is summed over the replicas.
        return loss * rows.local_fraction(loss.dtype) if loss.shape.rank else loss


@contextmanager
def normalize_globally(rows: StepRows, *, divide_later: bool = False) -> Iterator[list[tf.Tensor]]:
    """Rescale Keras's losses, reduced in here, so that they are means over ``rows``.

    With `divide_later` a loss with a divisor is not rescaled, and the list gets this replica's
    divisor.
    """
    keras_compat.replace_loss_reduction(_globally_normalized, lambda: normalized_rows() is not None)
    keras_compat.replace_added_losses(_added, lambda: step_context.current().added_losses)
    divisors: list[tf.Tensor] = []
    own = divisors if divide_later else None
    with step_context.extended(rows=rows, normalizes_losses=True, divisors=own):
        yield divisors


def normalized_rows() -> StepRows | None:
    """Return the rows that losses are made means over, None if Keras's are left as they are."""
    context = step_context.current()
    return context.rows if context.normalizes_losses else None


def _added(layer: keras.Layer, loss: Any, *, frame: FrameType) -> Any:
    """Return a loss of ``add_loss()``, rescaled to a mean over the rows if it is a sum of them."""
    rows, file = normalized_rows(), frame.f_code.co_filename
    call = f"{project_path(file) or file}, line {frame.f_lineno}"
    if rows is None or rows.replicas == 1:
        return loss
    # Keras sums numbers of a vector, e.g. one for each row, over the rows.
    is_sum = added_sums.get(layer, {}).get(call, loss.shape.rank != 0 or None)
    if simulated := step_context.current().simulated:
        simulated.added.setdefault((layer, call), []).append(tf.reduce_sum(loss))
    elif is_sum is None:
        warnings.warn(
            f"add_loss() of the layer {layer.name} ({call}) was not computed on parts "
            f"of a batch when the model was built: the loss is taken to be a mean over the "
            f"rows; if it is a sum, divide it by their number",
            stacklevel=2,
        )
    return tf.math.divide_no_nan(loss, rows.local_fraction(loss.dtype)) if is_sum else loss


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
        if (divisors := step_context.current().divisors) is not None:
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
