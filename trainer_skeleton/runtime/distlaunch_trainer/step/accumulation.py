"""Gradient accumulation on several replicas, with one all-reduce per update.

Keras adds each step's gradient to its accumulators, which requires that it is all-reduced first.
Here each replica adds its own share, and the sum over the replicas is applied at the update. In
between, the accumulators differ between replicas; they are all-reduced before they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer.keras_compat import keras_optimizers

from . import step_context
from .all_reduce import on_first_replica, sum_gradients, sum_over_replicas
from .step_timing import OF_TRAINER, StepTimer


class GradientAccumulation:
    """The accumulators of an optimizer, each replica's with its share of the gradients."""

    def __init__(
        self, model: keras.Model, strategy: tf.distribute.Strategy, timer: StepTimer | None
    ) -> None:
        # The model's optimizer is built, and `accumulates_locally` is true of it.
        self._strategy = strategy
        self._timer = timer
        self._iterations = keras_optimizers.iteration_counter(model.optimizer)
        self._steps = model.optimizer.gradient_accumulation_steps
        self._accumulators = [
            keras_optimizers.gradient_accumulator(model.optimizer, variable)
            for variable in model.trainable_variables
        ]
        self._hold_sums = True  # as they are built or restored: the same on all replicas
        with strategy.scope():
            self._loss = tf.Variable(
                0.0,
                trainable=False,
                dtype=tf.float64,
                name=OF_TRAINER,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )

    def is_update(self) -> tf.Tensor:
        """Return whether the optimizer updates the model in this step."""
        return tf.equal((self._iterations.value + 1) % self._steps, 0)

    def add(self, gradients: list[Any]) -> None:
        """Add each replica's gradients (one per variable, or None) in place of an update.

        To be called across replicas.
        """
        self._update(lambda accumulator, gradient: accumulator.assign_add(gradient), gradients)
        self._iterations.value.assign_add(1)

    @tf.autograph.experimental.do_not_convert
    def add_loss(self, loss: tf.Tensor) -> None:
        """Add a replica's share of a loss."""
        self._loss.assign_add(tf.cast(loss, tf.float64))

    @tf.autograph.experimental.do_not_convert
    def sum_over_steps(self, gradients: list[Any], loss: tf.Tensor) -> tuple[list[Any], tf.Tensor]:
        """Return gradients and mean loss of all replicas and all steps since the last update.

        They are given a replica's gradients of this step, or None, and its share of the loss.
        """
        pairs = zip(gradients, self._accumulators, strict=True)
        totals = [None if g is None else g + accumulator.value for g, accumulator in pairs]
        total_loss = self._loss + tf.cast(loss, tf.float64)
        self._loss.assign(0.0)
        dtype = next(total.dtype for total in totals if total is not None)  # one exchange for both
        with step_context.extended(timer=self._timer):
            summed_loss, *summed = sum_gradients([tf.cast(total_loss, dtype), *totals])
        return summed, summed_loss / self._steps

    def reset(self) -> None:
        """Set the accumulators to zero; to be called across replicas."""
        self._update(_assign, [tf.zeros(each.shape, each.dtype) for each in self._accumulators])

    def share(self) -> None:
        """Let the first replica alone hold sums that all replicas hold, before a step adds."""
        if self._hold_sums:
            self._replace(_keep_on_first)
            self._hold_sums = False

    def all_reduce(self) -> None:
        """Give all replicas the sums, before they are read."""
        if not self._hold_sums:
            self._replace(sum_over_replicas)
            self._hold_sums = True

    @tf.function(autograph=False)
    def _replace(self, function: Callable[[list[tf.Tensor]], list[tf.Tensor]]) -> None:
        """Set the accumulators of each replica to what a function returns of their values."""
        values = self._strategy.run(
            lambda: function([tf.identity(each.value) for each in self._accumulators])
        )
        self._update(_assign, values)

    def _update(self, function: Callable[..., Any], values: list[Any]) -> None:
        """Update the accumulators of each replica of this task by that replica's values."""
        for accumulator, value in zip(self._accumulators, values, strict=True):
            if value is not None:
                self._strategy.extended.update(
                    accumulator.value, function, args=(value,), group=False
                )


def accumulates_locally(model: keras.Model, replicas: int) -> bool:
    """Return whether gradients are accumulated here instead of by Keras.

    Keras does more than to accumulate in the steps between updates if it scales the loss, averages
    the weights or constrains them.
    """
    optimizer = model.optimizer
    return (
        replicas > 1
        and bool(optimizer.gradient_accumulation_steps)
        and not optimizer.use_ema
        and not isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        and not any(variable.constraint for variable in model.trainable_variables)
    )


def _keep_on_first(values: list[tf.Tensor]) -> list[tf.Tensor]:
    return [*map(on_first_replica, values)]


def _assign(variable: tf.Variable, value: tf.Tensor) -> None:
    variable.assign(value)
