"""One step of training or evaluation, on one replica and on all of them together.

Each replica differentiates its share of the global batch's loss (``losses``). The gradients are
all-reduced before the optimizer sees them, so that clipping acts on the gradient of the global
batch. The moving statistics of batch normalization differ between replicas until they are read, and
are averaged then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from . import keras_compat
from .accumulation import GradientAccumulation, accumulates_locally
from .all_reduce import (
    CollectiveInXlaError,
    no_collectives,
    sum_gradients,
    sum_over_replicas,
    to_exchange,
    with_static_shape,
)
from .custom_steps import CustomSteps, overrides
from .errors import ModelError
from .losses import Losses, StepRows, per_step_counters
from .normalization import BatchNormalizations
from .optimizer import use_cross_replica_cond
from .step_logs import StepLogs


class Execution(NamedTuple):
    """The results of several training steps that were executed together, as scalars and vectors.

    Attributes
    ----------
    loss
        The last step's loss over all replicas.
    not_finite
        The first step whose loss was not finite, from 0, or -1.
    steps
        The number of steps; 0 if a task signaled to stop.
    rows
        The rows of all steps over all replicas.
    signals
        The control signals, summed over the replicas (shape [3]).
    other_logs
        The logs of the last step that are no metrics (shape [n]).
    """

    loss: tf.Tensor
    not_finite: tf.Tensor
    steps: tf.Tensor
    rows: tf.Tensor
    signals: tf.Tensor
    other_logs: tf.Tensor


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
    exchange_dtype
        ``bfloat16`` to exchange gradients as such, ``float32`` to keep their data type.
    record_examples
        Called with the numbers of the examples of each step and replica, for an audit.
    """

    def __init__(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        *,
        has_empty_replicas: bool,
        synchronize: bool = False,
        exchange_dtype: str = "float32",
        record_examples: Callable[[np.ndarray], None] | None = None,
    ) -> None:
        self._model = model
        self._strategy = strategy
        self._replicas = strategy.num_replicas_in_sync
        self._has_empty_replicas = has_empty_replicas
        self._exchange_dtype = tf.as_dtype(exchange_dtype)
        self._record_examples = record_examples
        self._gathers_rows = False  # set when the training step is traced
        self._losses = Losses(model)
        self._normalizations = BatchNormalizations(model, self._replicas, synchronize=synchronize)
        self._custom = CustomSteps(model, self._normalizations, self._replicas)
        self._train_logs, self._test_logs = StepLogs(), StepLogs()
        self._last_logs: tuple[StepLogs, tf.Tensor] | None = None
        self._per_step_counters = per_step_counters(model)
        self._loss_tracker = keras_compat.loss_tracker(model)
        keras_compat.disable_gradient_aggregation(model.optimizer)
        use_cross_replica_cond()
        accumulates = not self._custom.has_train_step and accumulates_locally(model, self._replicas)
        self._accumulation = (
            GradientAccumulation(model, strategy, self._exchange_dtype) if accumulates else None
        )
        self._train_function = tf.function(self._train)
        self._test_function = tf.function(self._evaluate)
        self._results_function = tf.function(self._results)
        self.metric_sums = tf.function(self._metric_sums)

    @property
    def gathers_rows(self) -> bool:
        """Whether the replicas exchange rows of sparse gradients; known after the first step.

        An execution must be one step then: TensorFlow fails where a collective has another shape in
        a later step of it.
        """
        return self._gathers_rows or self._custom.gathers_rows

    @property
    def metric_variables(self) -> list[Any]:
        """The variables of the metrics; each replica counts its rows."""
        return [variable for metric in self._model.metrics for variable in metric.variables]

    def train(self, batches: Any, steps: tf.Tensor, signals: tf.Tensor) -> Execution:
        """Train some steps on all replicas, or none if a task signals to stop.

        Parameters
        ----------
        batches
            The iterator of the batches.
        steps
            Number of steps (scalar, int32).
        signals
            This task's control signals (shape [3]): whether to end the training and whether to stop
            the run, both for all tasks if above 0, and a number for the others.
        """
        if self._accumulation is not None:
            self._accumulation.share()
        return Execution(*self._train_function(batches, steps, signals))

    def keep_logs(self, execution: Execution) -> None:
        """Take the logs that are no metrics from an execution that trained some steps."""
        self._last_logs = self._train_logs, execution.other_logs

    def evaluate(self, batches: Any, steps: tf.Tensor, *, has_empty_replicas: bool) -> None:
        """Evaluate some steps on all replicas; the metrics hold the results.

        Parameters
        ----------
        batches
            The iterator of the batches.
        steps
            Number of steps (scalar, int32).
        has_empty_replicas
            Whether some replica has no row in some step.
        """
        others = self._test_function(batches, steps, has_empty_replicas=has_empty_replicas)
        self._last_logs = self._test_logs, others

    def logs(self) -> dict[str, Any]:
        """Return the logs of the steps so far: numbers, or arrays if a metric has several."""
        metrics = self._results_function()
        logs, others = self._last_logs or (self._train_logs, None)
        merged = dict(metrics) if others is None else logs.merge(metrics, others)
        results = {name: np.asarray(value, float) for name, value in merged.items()}
        return {name: v if v.size != 1 else v.item() for name, v in results.items()}

    def _train(
        self, batches: Any, steps: tf.Tensor, signals: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        # In the graph, so that no task waits in Python; and first, so that all stop at one step.
        signals = self._on_first_replica(self._all_reduce, signals)
        steps = tf.where(tf.reduce_any(signals[:2] > 0), 0, steps)
        loss = tf.constant(0.0)
        not_finite = tf.constant(-1)
        rows = tf.constant(0, tf.int64)
        others = tf.zeros([0], tf.float64)
        for number in tf.range(steps):
            tf.autograph.experimental.set_loop_options(
                shape_invariants=[(others, tf.TensorShape([None]))]
            )
            batch = next(batches)
            rows += self._strategy.experimental_local_results(batch[2])[0]
            loss, others = self._train_step(batch)
            is_first = tf.logical_and(not_finite < 0, ~tf.math.is_finite(loss))
            not_finite = tf.where(is_first, number, not_finite)
        return loss, not_finite, steps, rows, signals, others

    @tf.autograph.experimental.do_not_convert
    def _train_step(self, batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Train a step on all replicas; return the loss and the other logs."""
        accumulation = self._accumulation
        if accumulation is None:
            return self._on_first_replica(self._train_replica, batch)
        gradients, loss, others = self._strategy.run(self._gradients_to_accumulate, (batch,))

        def update() -> tf.Tensor:
            sums, mean = self._strategy.run(accumulation.sum_over_steps, (gradients, loss))
            accumulation.reset()
            variables = self._model.trainable_variables
            self._strategy.run(lambda sums: self._model.optimizer.apply(sums, variables), (sums,))
            return tf.cast(self._first(mean), tf.float32)

        def accumulate() -> tf.Tensor:
            self._strategy.run(accumulation.add_loss, (loss,))
            accumulation.add(gradients)
            # An estimate for the progress: the mean over all steps is exchanged at the update.
            estimate = tf.cast(self._first(loss), tf.float32) * self._replicas
            return tf.where(tf.math.is_finite(estimate), estimate, 0.0)

        return tf.cond(accumulation.is_update(), update, accumulate), self._first(others)

    def _gradients_to_accumulate(self, batch: Any) -> tuple[list[Any], tf.Tensor, tf.Tensor]:
        """Return a replica's gradients, dense, its share of the loss, and the other logs."""
        data, rows = self._unpack(batch, has_empty_replicas=self._has_empty_replicas)
        gradients, loss, others = self._forward_and_backward(data, rows)
        dense = [None if g is None else tf.convert_to_tensor(g) for g in gradients]
        if rows.may_be_empty:
            dense = [None if g is None else rows.without_placeholder(g) for g in dense]
        self._count_local_loss(loss, rows)
        if self._train_logs.others:
            others = self._mean_over_rows(others, rows)
        return dense, loss, others

    @tf.autograph.experimental.do_not_convert
    def _train_replica(self, batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Train one replica's part of a step; return the loss and the other logs."""
        data, rows = self._unpack(batch, has_empty_replicas=self._has_empty_replicas)
        if self._custom.has_train_step:
            return self._train_replica_by_model(data, rows)
        gradients, loss, others = self._forward_and_backward(data, rows)
        gradients, loss = self._all_reduce_gradients(gradients, loss, rows)
        if gradients:
            self._model.optimizer.apply(gradients, self._model.trainable_variables)
        self._count_loss(loss, rows)
        if self._train_logs.others:
            others = self._mean_over_rows(others, rows)
        return tf.cast(loss, tf.float32), others

    def _train_replica_by_model(self, data: Any, rows: StepRows) -> tuple[tf.Tensor, tf.Tensor]:
        before = self._snapshot(rows)
        logs = self._custom.train(data, rows)
        self._rescale_local_updates(before, rows)
        others = self._train_logs.vector(_flatten(logs), self._metric_results())
        loss = logs.get("loss", next(iter(logs.values()), 0.0))
        numbers = tf.concat([[tf.reduce_mean(tf.cast(loss, tf.float64))], others], 0)
        means = self._mean_over_rows(numbers, rows)
        return tf.cast(means[0], tf.float32), means[1:]

    def _forward_and_backward(
        self, data: Any, rows: StepRows
    ) -> tuple[list[Any], tf.Tensor, tf.Tensor]:
        """Return the gradients of this replica's share of the loss, the share, and other logs.

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

    def _gradients(self, data: Any, rows: StepRows) -> tuple[list[Any], tf.Tensor, tf.Tensor]:
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        before = self._snapshot(rows)
        with tf.GradientTape() as tape:
            with self._normalizations.in_replica(rows.local_rows):
                predicted = self._model(x, training=True)
            share = self._losses.share(x, y, predicted, weights, rows, training=True)
            scaled = self._model.optimizer.scale_loss(share.loss_to_differentiate)
        self._rescale_local_updates(before, rows)
        others = self._count_metrics(self._train_logs, rows, x, y, predicted, weights)
        gradients = tape.gradient(scaled, self._model.trainable_variables)
        return gradients, share.loss_to_report, others

    def _mean_over_rows(self, values: tf.Tensor, rows: StepRows) -> tf.Tensor:
        """Return the means of numbers of all replicas, weighted by their rows."""
        return self._all_reduce(rows.weigh(values))

    def _all_reduce(self, value: tf.Tensor) -> tf.Tensor:
        # A copy on the replica's device: TensorFlow sums where the tensors are.
        return value if self._replicas == 1 else sum_over_replicas([tf.identity(value)])[0]

    def _unpack(self, batch: Any, *, has_empty_replicas: bool) -> tuple[Any, StepRows]:
        data, local_rows, global_rows, *numbers = batch
        if self._record_examples is not None and numbers:
            tf.numpy_function(self._record_examples, [numbers[0][:local_rows]], [])
        return data, StepRows(local_rows, global_rows, self._replicas, has_empty_replicas)

    def _all_reduce_gradients(
        self, gradients: list[Any], loss: tf.Tensor, rows: StepRows
    ) -> tuple[list[Any], tf.Tensor]:
        """All-reduce gradients and loss together."""
        present = [gradient for gradient in gradients if gradient is not None]
        if gradients and not present:
            raise ModelError("no weight of the model has a gradient: see its layers and its loss")
        if self._replicas > 1:
            pairs = zip(gradients, self._model.trainable_variables, strict=True)
            present = [with_static_shape(g, v.shape) for g, v in pairs if g is not None]
            if rows.may_be_empty:
                present = [rows.without_placeholder(g) for g in present]
            self._gathers_rows = any(isinstance(g, tf.IndexedSlices) for g in present)
            wire = tf.float64 if loss.dtype == tf.float64 else tf.float32
            small = [to_exchange(gradient, self._exchange_dtype) for gradient in present]
            summed, *small = sum_gradients([tf.cast(loss, wire), *small])
            present = [tf.cast(s, g.dtype) for s, g in zip(small, present, strict=True)]
            loss = tf.cast(summed, loss.dtype)
        rest = iter(present)
        return [None if g is None else next(rest) for g in gradients], loss

    def _count_loss(self, loss: tf.Tensor, rows: StepRows) -> None:
        """Count the global loss once, on the first replica."""
        if self._loss_tracker is None:
            return
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        weight = tf.where(tf.equal(replica, 0), rows.global_rows, 0)
        self._loss_tracker.update_state(loss, sample_weight=weight)

    def _count_local_loss(self, loss: tf.Tensor, rows: StepRows) -> None:
        """Count a replica's share of the loss: with all replicas' it counts once for each row."""
        if self._loss_tracker is not None:
            weight = tf.cast(rows.global_rows, loss.dtype) / self._replicas
            self._loss_tracker.update_state(loss * self._replicas, sample_weight=weight)

    def _count_metrics(self, logs: StepLogs, rows: StepRows, *data: Any) -> tf.Tensor:
        """Update the metrics; return the numbers that ``compute_metrics()`` returns beside them."""

        def count() -> tf.Tensor:
            x, y, predicted, weights = data
            result = self._model.compute_metrics(x, y, predicted, sample_weight=weights)
            if not overrides(self._model, "compute_metrics"):
                return tf.zeros([0], tf.float64)
            return logs.vector(_flatten(result), self._metric_results())

        if rows.may_be_empty:
            none = lambda: tf.zeros([len(logs.others)], tf.float64)  # noqa: E731
            return tf.cond(rows.local_rows > 0, count, none)
        return count()

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

    def _evaluate(self, batches: Any, steps: tf.Tensor, *, has_empty_replicas: bool) -> tf.Tensor:
        others = tf.zeros([0], tf.float64)
        for _ in tf.range(steps):
            tf.autograph.experimental.set_loop_options(
                shape_invariants=[(others, tf.TensorShape([None]))]
            )
            args = next(batches), has_empty_replicas
            results = self._strategy.run(self._evaluate_replica, args=args)
            others = self._strategy.experimental_local_results(results)[0]
        return others

    @tf.autograph.experimental.do_not_convert
    def _evaluate_replica(self, batch: Any, has_empty_replicas: bool) -> tf.Tensor:
        data, rows = self._unpack(batch, has_empty_replicas=has_empty_replicas)
        if self._custom.has_test_step:
            return self._evaluate_replica_by_model(data, rows)
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        before = self._snapshot(rows)
        predicted = self._model(x, training=False)
        loss = self._losses.share(x, y, predicted, weights, rows, training=False).loss_to_report
        self._rescale_local_updates(before, rows)
        self._count_local_loss(loss, rows)
        others = self._count_metrics(self._test_logs, rows, x, y, predicted, weights)
        return self._mean_over_rows(others, rows) if self._test_logs.others else others

    def _evaluate_replica_by_model(self, data: Any, rows: StepRows) -> tf.Tensor:
        before = self._snapshot(rows)
        logs = self._custom.test(data, rows)
        self._rescale_local_updates(before, rows)
        others = self._test_logs.vector(_flatten(logs), self._metric_results())
        return self._mean_over_rows(others, rows) if self._test_logs.others else others

    def synchronize(self) -> None:
        """Give all replicas the same state, before the model or optimizer is read.

        That is for validation, callbacks and checkpoints. Each replica has moving statistics of its
        own rows, of which the mean is taken, and may accumulate gradients, which are summed.
        """
        if self._normalizations.moving_statistics:
            self._average_statistics()
        if self._accumulation is not None:
            self._accumulation.all_reduce()

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

    def _on_first_replica(self, function: Any, *args: Any) -> Any:
        return tf.nest.map_structure(self._first, self._strategy.run(function, args=args))

    def _first(self, value: Any) -> tf.Tensor:
        """Return the value of this task's first replica."""
        return self._strategy.experimental_local_results(value)[0]

    @tf.autograph.experimental.do_not_convert
    def _results_replica(self) -> dict[str, tf.Tensor]:
        counts = [tf.identity(variable.value) for variable in self.metric_variables]
        self._set_metrics(self._sums_replica())
        results = self._metric_results()
        self._set_metrics(counts)
        return results

    @tf.autograph.experimental.do_not_convert
    def _sums_replica(self) -> list[tf.Tensor]:
        values = [tf.identity(variable.value) for variable in self.metric_variables]
        if self._replicas == 1 or not values:
            return values
        return sum_over_replicas(values)

    def _metric_results(self) -> dict[str, tf.Tensor]:
        return _flatten(self._model.get_metrics_result())

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
