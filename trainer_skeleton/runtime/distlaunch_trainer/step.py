"""One step of training or evaluation, on one replica and on all of them together.

Each replica differentiates its share of the global batch's loss (``losses``). The gradients are
summed over the replicas before the optimizer sees them, so that clipping acts on the gradient of
the global batch. Moving statistics of batch normalisation are the replica's own in between, and
averaged before they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from . import keras_compat
from .errors import ModelError
from .losses import Losses, LossShare, StepRows, loss_counters
from .normalization import BatchNormalizations
from .optimizer import use_cross_replica_cond

# All-reduces of this size overlap the rest of the backward pass; smaller ones cost more latency.
_BYTES_PER_PACK = 32 << 20


class Steps:
    """The compiled functions of a model: blocks of training and evaluation steps, and results.

    Parameters
    ----------
    model
        A compiled Keras model, built in the strategy's scope.
    strategy
        The strategy that it was built in.
    may_lack_rows
        Whether some replica has no row in some step.
    synchronize
        Whether all batch normalisations take their statistics from all replicas.
    see
        What is called with the numbers of the examples of each step and replica, for an audit.
    """

    def __init__(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        *,
        may_lack_rows: bool,
        synchronize: bool = False,
        see: Callable[[np.ndarray], None] | None = None,
    ) -> None:
        self._model = model
        self._strategy = strategy
        self._replicas = strategy.num_replicas_in_sync
        self._may_lack_rows = may_lack_rows
        self._see = see
        _check_can_train(model)
        self._losses = Losses(model)
        self._normalizations = BatchNormalizations(model, self._replicas, synchronize=synchronize)
        self._counted_by_step = loss_counters(model)
        self._loss_tracker = keras_compat.loss_tracker(model)
        keras_compat.disable_gradient_aggregation(model.optimizer)
        use_cross_replica_cond()
        self.train = tf.function(self._train)
        self.evaluate = tf.function(self._evaluate)
        self.results = tf.function(self._results)
        self.metric_sums = tf.function(self._metric_sums)

    @property
    def metric_variables(self) -> list[Any]:
        """The variables in which the metrics count; each replica counts its own rows."""
        return [variable for metric in self._model.metrics for variable in metric.variables]

    def _train(
        self, batches: Any, steps: tf.Tensor, votes: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Train ``steps`` steps.

        ``votes`` are this task's numbers (shape [2]); they are summed over the replicas on the
        gradients' way. Returns the last step's loss, the first step whose loss was not finite (or
        -1), the summed votes, and the rows of all steps over all replicas.
        """
        report = tf.zeros([3])
        not_finite = tf.constant(-1)
        rows = tf.constant(0, tf.int64)
        for number in tf.range(steps):
            batch = next(batches)
            rows += self._strategy.experimental_local_results(batch[2])[0]
            reports = self._strategy.run(self._train_replica, args=(batch, votes))
            report = self._strategy.experimental_local_results(reports)[0]
            is_first = tf.logical_and(not_finite < 0, ~tf.math.is_finite(report[0]))
            not_finite = tf.where(is_first, number, not_finite)
        return report[0], not_finite, report[1:], rows

    @tf.autograph.experimental.do_not_convert
    def _train_replica(self, batch: Any, votes: tf.Tensor) -> tf.Tensor:
        data, rows = self._opened(batch)
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        before = self._values_before()
        with tf.GradientTape() as tape:
            with self._normalizations.counting(rows.own):
                predicted = self._model(x, training=True)
            share = self._losses.share(x, y, predicted, weights, rows, training=True)
            scaled = self._model.optimizer.scale_loss(share.objective)
        self._settle(before, rows)
        variables = self._model.trainable_variables
        gradients, loss, votes = self._exchanged(
            tape.gradient(scaled, variables), share, votes, rows
        )
        self._model.optimizer.apply(gradients, variables)
        self._count_loss(loss, rows)
        self._count_metrics(rows, x, y, predicted, weights)
        return tf.concat([[tf.cast(loss, tf.float32)], votes], 0)

    def _opened(self, batch: Any) -> tuple[Any, StepRows]:
        data, own, total, *numbers = batch
        if self._see is not None and numbers:
            tf.numpy_function(self._see, [numbers[0][:own]], [])
        return data, StepRows(own, total, self._replicas)

    def _exchanged(
        self, gradients: list[Any], share: LossShare, votes: tf.Tensor, rows: StepRows
    ) -> tuple[list[Any], tf.Tensor, tf.Tensor]:
        """Sum gradients, loss and votes over the replicas, in one exchange."""
        # Dense: what an embedding's rows get from several places is summed before it is squared or
        # clipped, and so alike on one replica and on many.
        pairs = zip(gradients, self._model.trainable_variables, strict=True)
        # Some gradients have no static shape; all need one to be grouped by size.
        present = [
            tf.ensure_shape(tf.convert_to_tensor(g), v.shape) for g, v in pairs if g is not None
        ]
        if not present:
            raise ModelError("no weight of the model has a gradient: see its layers and its loss")
        loss = share.reported
        if self._replicas > 1:
            present, loss, votes = self._summed(present, loss, votes, rows)
        rest = iter(present)
        return [None if g is None else next(rest) for g in gradients], loss, votes

    def _summed(
        self, gradients: list[tf.Tensor], loss: tf.Tensor, votes: tf.Tensor, rows: StepRows
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        if self._may_lack_rows:
            # Not times 0: what comes of a row that does not count need not be finite.
            gradients = [tf.where(rows.own > 0, g, tf.zeros_like(g)) for g in gradients]
        wire = tf.float64 if loss.dtype == tf.float64 else tf.float32
        numbers = tf.concat([[tf.cast(loss, wire)], tf.cast(votes, wire)], 0)
        numbers, *summed = _sum_over_replicas([numbers, *gradients])
        loss, votes = tf.cast(numbers[0], loss.dtype), tf.cast(numbers[1:], tf.float32)
        return summed, loss, votes

    def _count_loss(self, loss: tf.Tensor, rows: StepRows) -> None:
        """Count the global loss once, on the first replica."""
        if self._loss_tracker is None:
            return
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        weight = tf.where(tf.equal(replica, 0), rows.total, 0)
        self._loss_tracker.update_state(loss, sample_weight=weight)

    def _count_metrics(self, rows: StepRows, *data: Any) -> None:
        def count() -> tf.Tensor:
            x, y, predicted, weights = data
            self._model.compute_metrics(x, y, predicted, sample_weight=weights)
            return tf.constant(True)

        if self._may_lack_rows:
            tf.cond(rows.own > 0, count, lambda: tf.constant(False))
        else:
            count()

    def _values_before(self) -> list[tuple[Any, tf.Tensor]]:
        """Return what a forward pass and its loss change, and the values before it."""
        changed = self._counted_by_step
        if self._may_lack_rows:
            changed = [*self._own_statistics(), *self.metric_variables]
        return [(variable, tf.identity(variable.value)) for variable in changed]

    def _own_statistics(self) -> list[Any]:
        """Return the weights that a replica's own rows change."""
        common = [v for layer in self._normalizations.synchronized for v in layer.variables]
        return [v for v in _statistics(self._model) if not any(v is each for each in common)]

    def _settle(self, before: list[tuple[Any, tf.Tensor]], rows: StepRows) -> None:
        """Let this replica's rows count for their share of the batch, for nothing without any."""
        for variable, value in before:
            if any(variable is each for each in self._counted_by_step):
                change = (variable.value - value) * rows.part(variable.dtype)
                variable.assign(value + change)
            else:
                variable.assign(tf.where(rows.own > 0, variable.value, value))

    def _evaluate(self, batches: Any, steps: tf.Tensor) -> None:
        for _ in tf.range(steps):
            self._strategy.run(self._evaluate_replica, args=(next(batches),))

    @tf.autograph.experimental.do_not_convert
    def _evaluate_replica(self, batch: Any) -> None:
        data, rows = self._opened(batch)
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        before = self._values_before()
        predicted = self._model(x, training=False)
        loss = self._losses.share(x, y, predicted, weights, rows, training=False).reported
        self._settle(before, rows)
        if self._loss_tracker is not None:
            # Over all replicas this counts the global loss once for each global row.
            weight = tf.cast(rows.total, loss.dtype) / self._replicas
            self._loss_tracker.update_state(loss * self._replicas, sample_weight=weight)
        self._count_metrics(rows, x, y, predicted, weights)

    def average_statistics(self) -> None:
        """Give all replicas the mean of the moving statistics that each has of its own rows.

        To be called before the model is read: for validation, callbacks and checkpoints.
        """
        if self._normalizations.averages:
            self._average_statistics()

    @tf.function
    def _average_statistics(self) -> None:
        @tf.autograph.experimental.do_not_convert
        def average() -> None:
            variables = self._normalizations.averages
            sums = _sum_over_replicas([tf.identity(variable.value) for variable in variables])
            for variable, value in zip(variables, sums, strict=True):
                variable.assign(value / self._replicas)

        self._strategy.run(average)

    def _results(self) -> dict[str, tf.Tensor]:
        """Return the metrics over all replicas' rows; what each has counted stays as it is."""
        return self._on_first_replica(self._results_replica)

    def _metric_sums(self) -> list[tf.Tensor]:
        """Return the metric variables, summed over the replicas."""
        return self._on_first_replica(self._sums_replica)

    def _on_first_replica(self, function: Any) -> Any:
        values = self._strategy.run(function)
        return tf.nest.map_structure(
            lambda value: self._strategy.experimental_local_results(value)[0], values
        )

    @tf.autograph.experimental.do_not_convert
    def _results_replica(self) -> dict[str, tf.Tensor]:
        own = [tf.identity(variable.value) for variable in self.metric_variables]
        self._set_metrics(self._sums_replica())
        results = {
            name: tf.identity(value) for name, value in self._model.get_metrics_result().items()
        }
        self._set_metrics(own)
        return results

    @tf.autograph.experimental.do_not_convert
    def _sums_replica(self) -> list[tf.Tensor]:
        values = [tf.identity(variable.value) for variable in self.metric_variables]
        if self._replicas == 1 or not values:
            return values
        return _sum_over_replicas(values)

    def _set_metrics(self, values: list[tf.Tensor]) -> None:
        for variable, value in zip(self.metric_variables, values, strict=True):
            variable.assign(value)

    @tf.function
    def restore_metrics(self, sums: list[tf.Tensor]) -> None:
        """Go on counting from what all replicas had counted together."""

        def restore(values: list[tf.Tensor]) -> None:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            is_first = tf.equal(replica, 0)
            self._set_metrics([tf.where(is_first, v, tf.zeros_like(v)) for v in values])

        self._strategy.run(restore, args=(sums,))


def _sum_over_replicas(values: list[tf.Tensor]) -> list[tf.Tensor]:
    """Return sums, all-reduced in packs of values of one dtype.

    The last values are in the first pack: backpropagation computes their gradients first.
    """
    context = tf.distribute.get_replica_context()
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=_BYTES_PER_PACK)
    by_type: dict[tf.DType, list[int]] = {}
    for number, value in enumerate(values):
        by_type.setdefault(value.dtype, []).append(number)
    sums = list(values)
    for numbers in by_type.values():
        own = [values[n] for n in numbers]
        reduced = context.all_reduce(tf.distribute.ReduceOp.SUM, own, options)
        for number, value in zip(numbers, reduced, strict=True):
            sums[number] = value
    return sums


def _statistics(model: keras.Model) -> list[Any]:
    """Return the weights that a forward pass may change; those that were frozen are not."""
    layers = [layer for layer in keras_compat.all_layers(model) if layer.trainable]
    return [v for layer in layers for v in keras_compat.own_non_trainable_variables(layer)]


def _check_can_train(model: keras.Model) -> None:
    """Refuse what this trainer would train otherwise than ``fit``."""
    for method in ("train_step", "test_step"):
        if getattr(type(model), method) is not getattr(keras.Model, method):
            raise ModelError(
                f"{type(model).__name__}.{method}() of trainer/model.py would not be called, as "
                f"the steps are this trainer's own: do the same in compute_loss() or add_loss()"
            )
