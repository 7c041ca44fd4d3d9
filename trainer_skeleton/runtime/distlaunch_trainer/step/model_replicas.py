"""A model on all replicas, and what training and evaluation steps share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.input.batch_rows import count_rows, map_tensors
from distlaunch_trainer.input.batches import BatchForm
from distlaunch_trainer.input.user_data.batch_sharding import every_nth

from . import step_context
from .all_reduce import (
    on_first_replica,
    refuse_collectives_in_xla,
    replica_id,
    sum_over_replicas,
    weigh,
)
from .custom_steps import CustomSteps, TrainStep
from .losses import Losses
from .metric_updates import of_first_replica
from .normalization import BatchNormalizations
from .random_draws import seed_replica
from .replica_metrics import ReplicaMetrics
from .step_context import StepRows
from .step_timing import StepTimer, has_clock


class ModelReplicas:
    """A model on all replicas."""

    def __init__(
        self,
        model: keras.Model,  # compiled, and built in the strategy's scope
        strategy: tf.distribute.Strategy,
        *,
        synchronize: bool = False,  # batch normalizations take their statistics of all replicas
        train_step: TrainStep | None = None,  # of the user, in place of the compiled loss
        # Called with the numbers of the examples of each step and replica, for an audit.
        record_examples: Callable[[np.ndarray], None] | None = None,
    ) -> None:
        self.model = model
        self.strategy = strategy
        self.count = strategy.num_replicas_in_sync
        self.is_compiled = isinstance(strategy, tf.distribute.TPUStrategy)  # whole steps, by XLA
        # Whether the replicas exchange rows, e.g. of sparse gradients; known when a step is traced.
        # An execution must be one step then: TensorFlow fails where a collective has another shape
        # in a later step of it.
        self.gathers_rows = False
        # Rows of a step that all tasks expect, set before the first is traced; 0: not known.
        self.global_batch = 0
        self.has_divided_rows = True  # whether batches of the traced step are parts of a global one
        self.divides_by_task = False  # whether that is divided among the tasks first
        self._record_examples = record_examples
        refuse_collectives_in_xla(strategy)
        # XLA compiles each step of a TPU, and has no clock.
        is_timed = has_clock() and not (self.is_compiled or model.run_eagerly)
        self.timer = StepTimer() if is_timed else None
        self.losses = Losses(model)
        self.normalizations = BatchNormalizations(model, self.count, synchronize=synchronize)
        self.custom = CustomSteps(model, self.count, train_step)
        self.metrics = ReplicaMetrics(model, strategy)

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function on each replica; return what this task's first replica returns."""
        results = self.strategy.run(function, args=args)
        return tf.nest.map_structure(self.first, results)

    def first(self, value: Any) -> tf.Tensor:
        """Return the value of this task's first replica."""
        return self.strategy.experimental_local_results(value)[0]

    @contextmanager
    def step(self, batch: Any, *, may_be_empty: bool) -> Iterator[tuple[Any, StepRows]]:
        """Yield the data of a replica's batch, and its rows, for its part of a step in here."""
        data, local_rows, global_rows, *numbers = batch
        rows = StepRows(
            local_rows,
            tf.maximum(global_rows, 1),  # of a step without any row, no NaN
            self.count,
            may_be_empty,
            is_divided=self.has_divided_rows,
            per_task=len(self.strategy.extended.worker_devices) if self.divides_by_task else 1,
            size=_constant_rows(data) if self.is_compiled else None,
        )
        seed_replica()
        if self.count > 1 and not self.is_compiled:
            self.metrics.watch()
            data = map_tensors(_with_any_rows, data)
        if self._record_examples is not None and numbers:
            tf.numpy_function(self._record_examples, [numbers[0][:local_rows]], [])
        own = {"timer": self.timer, "note_gather": self._note_gather, "added_losses": []}
        with step_context.extended(rows=rows, **own):
            yield data, rows

    def _note_gather(self) -> None:
        self.gathers_rows = True

    @contextmanager
    def unchanged_without_rows(self, rows: StepRows) -> Iterator[None]:
        """Undo what a forward pass in here changes without rows, but not by the rows of others.

        Variables of layers get the first replica's values: what does not depend on the rows, such
        as a count of steps or a norm of weights, stays equal on all.
        """
        if not rows.may_be_empty:
            yield
            return
        changed = [*self._local_statistics(), *self.metrics.variables]
        before = [(variable, tf.identity(variable.value)) for variable in changed]
        yield
        firsts = self._statistics_of_first_replica()
        kept = {id(variable) for metric in of_first_replica for variable in metric.variables}
        for variable, value in before:
            if id(variable) not in kept:
                previous = firsts.get(id(variable), value)
                variable.assign(tf.where(rows.local_rows > 0, variable.value, previous))

    def _local_statistics(self) -> list[Any]:
        """Return the weights that a replica's forward pass may change by its rows alone."""
        common = [v for layer in self.normalizations.synchronized for v in layer.variables]
        # Frozen layers change none.
        layers = [layer for layer in keras_compat.all_layers(self.model) if layer.trainable]
        own = [v for layer in layers for v in keras_compat.own_non_trainable_variables(layer)]
        return [v for v in own if not any(v is other for other in common)]

    def _statistics_of_first_replica(self) -> dict[int, tf.Tensor]:
        averaged = set(map(id, self.normalizations.moving_statistics))
        variables = [v for v in self._local_statistics() if id(v) not in averaged]
        if not variables:  # nothing to exchange, so XLA compiles the step
            return {}
        own = [on_first_replica(variable.value) for variable in variables]
        return dict(zip(map(id, variables), sum_over_replicas(own), strict=True))

    def count_rows(self, batch: Any, *, form: BatchForm) -> tuple[Any, tf.Tensor, tf.Tensor]:
        """Return a replica's data of a batch that is not divided, its rows, and all replicas'."""
        if form == "same":
            total = count_rows(batch)
            if self.count == 1:
                return batch, total, total
            own, rows = every_nth(batch, tf.cast(replica_id(), tf.int64), total, self.count)
            return own, rows, total
        if form == "whole":
            own = count_rows(batch)
            # TensorFlow gives empty batches to the replicas whose data have ended before others'.
            batch = map_tensors(partial(_with_row, rows=own), batch), own
        data, own, *numbers = batch
        return data, own, self.all_reduce(own), *numbers

    def all_reduce(self, value: tf.Tensor) -> tf.Tensor:
        """Return the sum of a value over the replicas; to be called on each."""
        # A copy on the replica's device: TensorFlow sums where the tensors are.
        return value if self.count == 1 else sum_over_replicas([tf.identity(value)])[0]

    def agree_on_loss(self, share: tf.Tensor, not_finite: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the loss, and the first step in which some task's share was not finite, or -1.

        To be called on each replica, with its task's share (scalar, float32) and step (int32).
        """
        if self.count == 1:
            return share, not_finite
        local = tf.constant(len(self.strategy.extended.worker_devices), tf.float32)
        steps = tf.one_hot(replica_id(), self.count) * tf.cast(not_finite + 1, tf.float32)
        sums = self.all_reduce(tf.concat([[share / local], steps], 0))
        found = tf.where(sums[1:] > 0, tf.cast(sums[1:], tf.int32) - 1, tf.int32.max)
        first = tf.reduce_min(found)
        return sums[0], tf.where(first < tf.int32.max, first, -1)

    def mean_over_rows(self, values: tf.Tensor, rows: StepRows) -> tf.Tensor:
        """Return the means of numbers of all replicas (shape [n]), weighted by their rows."""
        return self.all_reduce(weigh(values, rows)) if values.shape[0] else values

    @tf.function(autograph=False)
    def average_statistics(self) -> None:
        """Set the moving statistics, of which each replica has its own, to their means."""

        def average() -> None:
            variables = self.normalizations.moving_statistics
            sums = sum_over_replicas([tf.identity(variable.value) for variable in variables])
            for variable, value in zip(variables, sums, strict=True):
                variable.assign(value / self.count)

        self.strategy.run(average)


def _constant_rows(data: Any) -> int | None:
    """Return the rows of a batch, if they are constant when a step is traced."""
    shapes = [part.shape for part in tf.nest.flatten(data) if hasattr(part, "shape")]
    return next((shape[0] for shape in shapes if shape.rank), None)


def _with_row(value: Any, rows: tf.Tensor) -> Any:
    """Return a tensor with a row of zeros if it has none."""
    if not isinstance(value, tf.Tensor) or not value.shape.rank:
        return value
    shape = tf.concat([[tf.cast(rows == 0, tf.int32)], tf.shape(value)[1:]], 0)
    return tf.concat([value, tf.zeros(shape, value.dtype)], 0)


def _with_any_rows(value: Any) -> Any:
    """Return a tensor without a static number of rows, by which sums over the rows are known."""
    if not isinstance(value, tf.Tensor) or not value.shape.rank or value.shape[0] is None:
        return value
    return tf.compat.v1.placeholder_with_default(value, [None, *value.shape[1:]])
