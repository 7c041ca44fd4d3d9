"""One training step, on one replica and on all of them together.

Each replica differentiates its share of the global batch's loss (``losses``). The gradients are
all-reduced before the optimizer sees them, so that clipping acts on the gradient of the global
batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.keras_compat import keras_optimizers
from distlaunch_trainer.keras_compat.keras_random import is_same

from . import step_context
from .accumulation import GradientAccumulation, accumulates_locally
from .all_reduce import (
    CollectiveInXlaError,
    add,
    gathers_rows,
    indices_per_row,
    scale,
    sum_gradients,
    with_static_shape,
    without_placeholder,
)
from .model_replicas import ModelReplicas
from .replica_metrics import StepLogs
from .step_context import StepRows


class _LocalResults(NamedTuple):
    """Results of a replica's rows."""

    gradients: list[Any]  # its share of each weight's, None for weights that have none
    loss: tf.Tensor  # its share (scalar)
    divisor: tf.Tensor | None  # see LossShare; None if nothing is still to be divided
    other_logs: tf.Tensor  # that are no metrics (shape [n])


class TrainingStep:
    """Trains on one batch."""

    def __init__(self, replicas: ModelReplicas) -> None:
        self.replicas = replicas
        self._model = replicas.model
        self._is_compiled = False  # by XLA, set when the forward pass is traced
        if self._model.jit_compile and not replicas.is_compiled:
            keras_optimizers.compile_updates(self._model.optimizer, lambda: self._is_compiled)
        self.logs = StepLogs()
        is_custom = replicas.custom.has_train_step or replicas.custom.function
        # Whether a step returns this task's share of the loss. It is exchanged once per execution:
        # a user's function has exchanged the gradients, and to do so again takes as long.
        self.has_local_loss = replicas.custom.function is not None
        accumulates = not is_custom and accumulates_locally(self._model, replicas.count)
        # None if the model's optimizer accumulates gradients itself, or does not accumulate.
        self.accumulation = (
            GradientAccumulation(self._model, replicas.strategy, replicas.timer)
            if accumulates
            else None
        )

    @tf.autograph.experimental.do_not_convert
    def __call__(self, batch: Any, has_empty_replicas: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Train a step on all replicas; return the loss and the logs that are no metrics.

        With a user's function the loss is this task's share: see `has_local_loss`.
        """
        if self.has_local_loss:
            shares = self.replicas.strategy.run(
                self._train_replica_by_function, (batch, has_empty_replicas)
            )
            local = self.replicas.strategy.experimental_local_results(shares)
            return tf.add_n(local), tf.zeros([0], tf.float64)
        if self.accumulation is None:
            return self.replicas.run(self._train_replica, batch, has_empty_replicas)
        return self._accumulate(batch, has_empty_replicas, self.accumulation)

    def _accumulate(
        self, batch: Any, has_empty_replicas: bool, accumulation: GradientAccumulation
    ) -> tuple[tf.Tensor, tf.Tensor]:
        strategy, first = self.replicas.strategy, self.replicas.first
        gradients, loss, others = strategy.run(
            self._gradients_to_accumulate, (batch, has_empty_replicas)
        )

        def update() -> tf.Tensor:
            sums, mean = strategy.run(accumulation.sum_over_steps, (gradients, loss))
            accumulation.reset()
            variables = self._model.trainable_variables
            strategy.run(lambda sums: self._model.optimizer.apply(sums, variables), (sums,))
            return tf.cast(first(mean), tf.float32)

        def accumulate() -> tf.Tensor:
            strategy.run(accumulation.add_loss, (loss,))
            accumulation.add(gradients)
            # An estimate for the progress: the mean over all steps is exchanged at the update.
            estimate = tf.cast(first(loss), tf.float32) * self.replicas.count
            return tf.where(tf.math.is_finite(estimate), estimate, 0.0)

        return tf.cond(accumulation.is_update(), update, accumulate), first(others)

    def _gradients_to_accumulate(
        self, batch: Any, has_empty_replicas: bool
    ) -> tuple[list[Any], tf.Tensor, tf.Tensor]:
        """Return a replica's gradients, dense, its share of the loss, and the other logs."""
        with self.replicas.step(batch, may_be_empty=has_empty_replicas) as (data, rows):
            local = self._forward_and_backward(data, rows)
            dense = [None if g is None else tf.convert_to_tensor(g) for g in local.gradients]
            if rows.may_be_empty:
                dense = [None if g is None else without_placeholder(g, rows) for g in dense]
            self.replicas.metrics.count_loss(local.loss * self.replicas.count, rows)
            return dense, local.loss, self.replicas.mean_over_rows(local.other_logs, rows)

    @tf.autograph.experimental.do_not_convert
    def _train_replica(self, batch: Any, has_empty_replicas: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Train one replica's part of a step; return the loss and the other logs."""
        with self.replicas.step(batch, may_be_empty=has_empty_replicas) as (data, rows):
            if self.replicas.custom.has_train_step:
                return self._train_replica_by_model(data, rows)
            local = self._forward_and_backward(data, rows)
            gradients, loss = self._all_reduce_gradients(local, rows)
            if gradients:
                self._model.optimizer.apply(gradients, self._model.trainable_variables)
            self.replicas.metrics.count_loss(loss, rows)
            return tf.cast(loss, tf.float32), self.replicas.mean_over_rows(local.other_logs, rows)

    @tf.autograph.experimental.do_not_convert
    def _train_replica_by_function(self, batch: Any, has_empty_replicas: bool) -> tf.Tensor:
        """Train one replica's part of a step by the user's function; return its share."""
        with self.replicas.step(batch, may_be_empty=has_empty_replicas) as (data, rows):
            with self.replicas.unchanged_without_rows(rows):
                share = self.replicas.custom.call_function(data, rows)
            self.replicas.metrics.count_loss(share * self.replicas.count, rows)
            return tf.cast(share, tf.float32)

    def _train_replica_by_model(self, data: Any, rows: StepRows) -> tuple[tf.Tensor, tf.Tensor]:
        with self.replicas.unchanged_without_rows(rows):
            logs = self.replicas.custom.train(data, rows)
        others = self.replicas.metrics.other_numbers(
            self.logs, "train_step", logs, self.replicas.custom.metric_names
        )
        loss = logs.get("loss", next(iter(logs.values()), 0.0))
        numbers = tf.concat([[tf.reduce_mean(tf.cast(loss, tf.float64))], others], 0)
        means = self.replicas.mean_over_rows(numbers, rows)
        return tf.cast(means[0], tf.float32), means[1:]

    def _forward_and_backward(self, data: Any, rows: StepRows) -> _LocalResults:
        """Differentiate this replica's share of the loss.

        With ``jit_compile`` XLA compiles it, once for each shape of a batch, and the optimizer;
        unless it has collectives, which XLA does not compile.
        """
        is_uncompiled = not self._model.jit_compile or is_same()  # XLA needs constant shapes
        if is_uncompiled or self.replicas.is_compiled:
            return self._gradients(data, rows)

        @tf.autograph.experimental.do_not_convert
        def gradients(data: Any, local_rows: tf.Tensor, global_rows: tf.Tensor) -> Any:
            own = replace(rows, local_rows=local_rows, global_rows=global_rows)
            with step_context.extended(rows=own, in_xla=True):
                return self._gradients(data, own)

        try:
            compiled = tf.function(gradients, jit_compile=True)
            results = compiled(data, rows.local_rows, rows.global_rows)
        except CollectiveInXlaError:
            return self._gradients(data, rows)
        self._is_compiled = True
        return results

    def _gradients(self, data: Any, rows: StepRows) -> _LocalResults:
        replicas, optimizer = self.replicas, self._model.optimizer
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        # A sum overflows where a mean does not, and accumulated sums have different divisors.
        is_scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        may_divide_later = not is_scaled and self.accumulation is None
        with replicas.unchanged_without_rows(rows):
            with tf.GradientTape() as tape:
                predicted = replicas.losses.outputs(x, rows, training=True)
                data = x, y, predicted, weights
                share = replicas.losses.share(
                    *data, rows, training=True, may_divide_later=may_divide_later
                )
                scaled = optimizer.scale_loss(share.loss_to_differentiate)
            others = replicas.metrics.count(self.logs, *data)
        gradients = tape.gradient(scaled, self._model.trainable_variables)
        if self.replicas.count > 1 and keras_optimizers.adds_gradients(optimizer):
            gradients = [*map(self._dense_if_smaller, gradients)]
        return _LocalResults(gradients, share.loss_to_report, share.divisor, others)

    def _dense_if_smaller(self, gradient: Any) -> Any:
        """Return a table's gradient, dense where the rows of the global batch are no less.

        That is decided by what all tasks know when they trace a step.
        """
        batch = self.replicas.global_batch
        if not batch or not gathers_rows(gradient):
            return gradient
        looked_up = indices_per_row(gradient)
        is_smaller = looked_up is not None and gradient.shape[0] <= batch * looked_up
        return tf.convert_to_tensor(gradient) if is_smaller else gradient

    def _all_reduce_gradients(
        self, local: _LocalResults, rows: StepRows
    ) -> tuple[list[Any], tf.Tensor]:
        """All-reduce gradients, loss and divisor together; return the gradients and the loss."""
        gradients, loss = local.gradients, local.loss
        if gradients and all(gradient is None for gradient in gradients):
            raise ModelError("no weight of the model has a gradient: see its layers and its loss")
        if self.replicas.count == 1:
            return gradients, loss
        pairs = zip(gradients, self._model.trainable_variables, strict=True)
        own = [g if g is None else self._to_exchange(g, v.shape, rows) for g, v in pairs]
        wire = tf.float64 if loss.dtype == tf.float64 else tf.float32
        scalars = [loss] if local.divisor is None else [loss, local.divisor]
        sums = sum_gradients([*(tf.cast(scalar, wire) for scalar in scalars), *own])
        loss, *divisor = (tf.cast(total, loss.dtype) for total in sums[: len(scalars)])
        summed = sums[len(scalars) :]
        return self._divide(summed, loss, *divisor) if divisor else (summed, loss)

    def _to_exchange(self, gradient: Any, shape: tuple[int, ...], rows: StepRows) -> Any:
        gradient = with_static_shape(gradient, shape)
        if self.replicas.is_compiled:  # XLA needs to know the number of rows
            gradient = tf.convert_to_tensor(gradient)
        return without_placeholder(gradient, rows) if rows.may_be_empty else gradient

    def _divide(
        self, gradients: list[Any], loss: tf.Tensor, divisor: tf.Tensor
    ) -> tuple[list[Any], tf.Tensor]:
        """Divide sums over all replicas, and add the regularizers of weights."""
        factor = tf.math.divide_no_nan(tf.ones_like(divisor), divisor)
        gradients = [None if g is None else scale(g, factor) for g in gradients]
        loss *= factor
        with tf.GradientTape() as tape:
            regularizers = self.replicas.losses.regularizers()
            if regularizers is None:
                return gradients, loss
            scaled = self._model.optimizer.scale_loss(regularizers)
        added = tape.gradient(scaled, self._model.trainable_variables)
        gradients = [add(*pair) for pair in zip(gradients, added, strict=True)]
        return gradients, loss + tf.cast(regularizers, loss.dtype)
