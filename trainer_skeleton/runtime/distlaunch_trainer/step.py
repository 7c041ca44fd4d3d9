"""One step of training or evaluation, on one replica and on all of them together.

Each replica differentiates its share of the global batch's loss (``losses``). The gradients are
all-reduced before the optimizer sees them, so that clipping acts on the gradient of the global
batch. The moving statistics of batch normalization differ between replicas until they are read, and
are averaged then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from . import keras_compat
from .all_reduce import CollectiveInXlaError, gather_rows, no_collectives, sum_over_replicas
from .errors import ModelError
from .losses import Losses, StepRows, per_step_counters
from .normalization import BatchNormalizations
from .optimizer import use_cross_replica_cond


class StepFunctions:
    """The compiled functions of a model: executions of several steps, and metric results.

    Parameters
    ----------
    model
        A compiled Keras model, built in the strategy's scope.
    strategy
        The strategy that it was built in.
    has_empty_replicas
        Whether some replica has no row in some training step.
    synchronize
        Whether all batch normalizations take their statistics from all replicas.
    record_examples
        Called with the numbers of the examples of each step and replica, for an audit.

    Attributes
    ----------
    gathers_rows
        Whether the replicas exchange rows of sparse gradients. An execution must be one step then:
        TensorFlow fails where a collective has another shape in a later step of it. It is known
        after the first step.
    """

    def __init__(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        *,
        has_empty_replicas: bool,
        synchronize: bool = False,
        record_examples: Callable[[np.ndarray], None] | None = None,
    ) -> None:
        self._model = model
        self._strategy = strategy
        self._replicas = strategy.num_replicas_in_sync
        self._has_empty_replicas = has_empty_replicas
        self._record_examples = record_examples
        self.gathers_rows = False  # set when the training step is traced
        _check_can_train(model)
        self._losses = Losses(model)
        self._normalizations = BatchNormalizations(model, self._replicas, synchronize=synchronize)
        self._per_step_counters = per_step_counters(model)
        self._loss_tracker = keras_compat.loss_tracker(model)
        keras_compat.disable_gradient_aggregation(model.optimizer)
        use_cross_replica_cond()
        self.train = tf.function(self._train)
        self.evaluate = tf.function(self._evaluate)
        self.results = tf.function(self._results)
        self.metric_sums = tf.function(self._metric_sums)

    @property
    def metric_variables(self) -> list[Any]:
        """The variables of the metrics; each replica counts its rows."""
        return [variable for metric in self._model.metrics for variable in metric.variables]

    def _train(
        self, batches: Any, steps: tf.Tensor, signals: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Train ``steps`` steps.

        ``signals`` are this task's control signals (shape [2]), all-reduced with the gradients.
        Returns the last step's loss, the first step whose loss was not finite (or -1), the summed
        signals, and the rows of all steps over all replicas.
        """
        report = tf.zeros([3])
        not_finite = tf.constant(-1)
        rows = tf.constant(0, tf.int64)
        for number in tf.range(steps):
            batch = next(batches)
            rows += self._strategy.experimental_local_results(batch[2])[0]
            reports = self._strategy.run(self._train_replica, args=(batch, signals))
            report = self._strategy.experimental_local_results(reports)[0]
            is_first = tf.logical_and(not_finite < 0, ~tf.math.is_finite(report[0]))
            not_finite = tf.where(is_first, number, not_finite)
        return report[0], not_finite, report[1:], rows

    @tf.autograph.experimental.do_not_convert
    def _train_replica(self, batch: Any, signals: tf.Tensor) -> tf.Tensor:
        data, rows = self._unpack(batch, has_empty_replicas=self._has_empty_replicas)
        gradients, loss = self._forward_and_backward(data, rows)
        gradients, loss, signals = self._all_reduce_gradients(gradients, loss, signals, rows)
        if gradients:
            self._model.optimizer.apply(gradients, self._model.trainable_variables)
        self._count_loss(loss, rows)
        return tf.concat([[tf.cast(loss, tf.float32)], signals], 0)

    def _forward_and_backward(self, data: Any, rows: StepRows) -> tuple[list[Any], tf.Tensor]:
        """Return the gradients of this replica's share of the loss, and the share to report.

        With ``jit_compile`` XLA compiles it, once for each shape of a batch; unless it has
        collectives, which XLA does not compile.
        """
        if not self._model.jit_compile:
            return self._gradients(data, rows)

        @tf.autograph.experimental.do_not_convert
        def gradients(data: Any, local_rows: tf.Tensor, global_rows: tf.Tensor) -> Any:
            with no_collectives():
                own = replace(rows, local_rows=local_rows, global_rows=global_rows)
                return self._gradients(data, own)

        try:
            compiled = tf.function(gradients, jit_compile=True)
            return compiled(data, rows.local_rows, rows.global_rows)
        except CollectiveInXlaError:
            return self._gradients(data, rows)

    def _gradients(self, data: Any, rows: StepRows) -> tuple[list[Any], tf.Tensor]:
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        before = self._snapshot(rows)
        with tf.GradientTape() as tape:
            with self._normalizations.in_replica(rows.local_rows):
                predicted = self._model(x, training=True)
            share = self._losses.share(x, y, predicted, weights, rows, training=True)
            scaled = self._model.optimizer.scale_loss(share.loss_to_differentiate)
        self._rescale_local_updates(before, rows)
        self._count_metrics(rows, x, y, predicted, weights)
        return tape.gradient(scaled, self._model.trainable_variables), share.loss_to_report

    def _unpack(self, batch: Any, *, has_empty_replicas: bool) -> tuple[Any, StepRows]:
        data, local_rows, global_rows, *numbers = batch
        if self._record_examples is not None and numbers:
            tf.numpy_function(self._record_examples, [numbers[0][:local_rows]], [])
        return data, StepRows(local_rows, global_rows, self._replicas, has_empty_replicas)

    def _all_reduce_gradients(
        self, gradients: list[Any], loss: tf.Tensor, signals: tf.Tensor, rows: StepRows
    ) -> tuple[list[Any], tf.Tensor, tf.Tensor]:
        """All-reduce gradients, loss and control signals together."""
        present = [gradient for gradient in gradients if gradient is not None]
        if gradients and not present:
            raise ModelError("no weight of the model has a gradient: see its layers and its loss")
        if self._replicas > 1:
            pairs = zip(gradients, self._model.trainable_variables, strict=True)
            present = [_with_static_shape(g, v.shape) for g, v in pairs if g is not None]
            present, loss, signals = self._all_reduce_all(present, loss, signals, rows)
        rest = iter(present)
        return [None if g is None else next(rest) for g in gradients], loss, signals

    def _all_reduce_all(
        self, gradients: list[Any], loss: tf.Tensor, signals: tf.Tensor, rows: StepRows
    ) -> tuple[list[Any], tf.Tensor, tf.Tensor]:
        if rows.may_be_empty:
            gradients = [_without_placeholder_row(g, rows) for g in gradients]
        wire = tf.float64 if loss.dtype == tf.float64 else tf.float32
        numbers = tf.concat([[tf.cast(loss, wire)], tf.cast(signals, wire)], 0)
        sparse = [g for g in gradients if isinstance(g, tf.IndexedSlices)]
        dense = [g for g in gradients if not isinstance(g, tf.IndexedSlices)]
        self.gathers_rows = bool(sparse)
        gathered = iter(gather_rows(sparse))
        numbers, *summed = sum_over_replicas([numbers, *dense])
        reduced = iter(summed)
        gradients = [
            next(gathered if isinstance(g, tf.IndexedSlices) else reduced) for g in gradients
        ]
        loss, signals = tf.cast(numbers[0], loss.dtype), tf.cast(numbers[1:], tf.float32)
        return gradients, loss, signals

    def _count_loss(self, loss: tf.Tensor, rows: StepRows) -> None:
        """Count the global loss once, on the first replica."""
        if self._loss_tracker is None:
            return
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        weight = tf.where(tf.equal(replica, 0), rows.global_rows, 0)
        self._loss_tracker.update_state(loss, sample_weight=weight)

    def _count_metrics(self, rows: StepRows, *data: Any) -> None:
        def count() -> tf.Tensor:
            x, y, predicted, weights = data
            self._model.compute_metrics(x, y, predicted, sample_weight=weights)
            return tf.constant(True)

        if rows.may_be_empty:
            tf.cond(rows.local_rows > 0, count, lambda: tf.constant(False))
        else:
            count()

    def _snapshot(self, rows: StepRows) -> list[tuple[Any, tf.Tensor]]:
        """Return the variables that a forward pass and its loss change, and their values."""
        changed = self._per_step_counters
        if rows.may_be_empty:
            changed = [*self._local_statistics(), *self.metric_variables]
        return [(variable, tf.identity(variable.value)) for variable in changed]

    def _local_statistics(self) -> list[Any]:
        """Return the weights that a replica changes by its rows alone."""
        common = [v for layer in self._normalizations.synchronized for v in layer.variables]
        return [v for v in _statistics(self._model) if not any(v is other for other in common)]

    def _rescale_local_updates(self, before: list[tuple[Any, tf.Tensor]], rows: StepRows) -> None:
        """Scale what this replica counted per step by its rows, and undo updates without rows."""
        for variable, value in before:
            if any(variable is counter for counter in self._per_step_counters):
                change = (variable.value - value) * rows.local_fraction(variable.dtype)
                variable.assign(value + change)
            else:
                variable.assign(tf.where(rows.local_rows > 0, variable.value, value))

    def _evaluate(self, batches: Any, steps: tf.Tensor, *, has_empty_replicas: bool) -> None:
        for _ in tf.range(steps):
            self._strategy.run(self._evaluate_replica, args=(next(batches), has_empty_replicas))

    @tf.autograph.experimental.do_not_convert
    def _evaluate_replica(self, batch: Any, has_empty_replicas: bool) -> None:
        data, rows = self._unpack(batch, has_empty_replicas=has_empty_replicas)
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        before = self._snapshot(rows)
        predicted = self._model(x, training=False)
        loss = self._losses.share(x, y, predicted, weights, rows, training=False).loss_to_report
        self._rescale_local_updates(before, rows)
        if self._loss_tracker is not None:
            # Over all replicas this counts the global loss once for each global row.
            weight = tf.cast(rows.global_rows, loss.dtype) / self._replicas
            self._loss_tracker.update_state(loss * self._replicas, sample_weight=weight)
        self._count_metrics(rows, x, y, predicted, weights)

    def average_statistics(self) -> None:
        """Give all replicas the mean of the moving statistics that each has of its own rows.

        To be called before the model is read: for validation, callbacks and checkpoints.
        """
        if self._normalizations.moving_statistics:
            self._average_statistics()

    @tf.function
    def _average_statistics(self) -> None:
        @tf.autograph.experimental.do_not_convert
        def average() -> None:
            variables = self._normalizations.moving_statistics
            sums = sum_over_replicas([tf.identity(variable.value) for variable in variables])
            for variable, value in zip(variables, sums, strict=True):
                variable.assign(value / self._replicas)

        self._strategy.run(average)

    def _results(self) -> dict[str, tf.Tensor]:
        """Return the metrics over all replicas; the counts of each replica are not changed."""
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
        counts = [tf.identity(variable.value) for variable in self.metric_variables]
        self._set_metrics(self._sums_replica())
        results = _flatten(self._model.get_metrics_result())
        self._set_metrics(counts)
        return results

    @tf.autograph.experimental.do_not_convert
    def _sums_replica(self) -> list[tf.Tensor]:
        values = [tf.identity(variable.value) for variable in self.metric_variables]
        if self._replicas == 1 or not values:
            return values
        return sum_over_replicas(values)

    def _set_metrics(self, values: list[tf.Tensor]) -> None:
        for variable, value in zip(self.metric_variables, values, strict=True):
            variable.assign(value)

    @tf.function
    def restore_metrics(self, sums: list[tf.Tensor]) -> None:
        """Set the metrics to the sums over all replicas of a checkpoint."""

        def restore(values: list[tf.Tensor]) -> None:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            is_first = tf.equal(replica, 0)
            self._set_metrics([tf.where(is_first, v, tf.zeros_like(v)) for v in values])

        self._strategy.run(restore, args=(sums,))


def _with_static_shape(gradient: Any, shape: tuple[int, ...]) -> Any:
    """Return a gradient whose static shape is known, which all-reduce needs to group by size."""
    if isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.ensure_shape(gradient, shape)


def _without_placeholder_row(gradient: Any, rows: StepRows) -> Any:
    """Return no gradient if this replica has no row; that of its placeholder may not be finite."""
    if not isinstance(gradient, tf.IndexedSlices):
        return tf.where(rows.local_rows > 0, gradient, tf.zeros_like(gradient))
    kept = tf.where(rows.local_rows > 0, tf.size(gradient.indices), 0)
    return tf.IndexedSlices(gradient.values[:kept], gradient.indices[:kept], gradient.dense_shape)


def _statistics(model: keras.Model) -> list[Any]:
    """Return the weights that a forward pass may change; frozen layers change none."""
    layers = [layer for layer in keras_compat.all_layers(model) if layer.trainable]
    return [v for layer in layers for v in keras_compat.own_non_trainable_variables(layer)]


def _flatten(results: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Return results with those of metrics that return a dict, as ``fit`` logs them."""
    flat = {}
    for name, value in results.items():
        flat |= _flatten(value) if isinstance(value, dict) else {name: tf.identity(value)}
    return flat


def _check_can_train(model: keras.Model) -> None:
    """Refuse a model with training steps of its own."""
    for method in ("train_step", "test_step"):
        if getattr(type(model), method) is not getattr(keras.Model, method):
            raise ModelError(
                f"{type(model).__name__}.{method}() of trainer/model.py would not be called, as "
                f"the steps are this trainer's own: do the same in compute_loss() or add_loss()"
            )
