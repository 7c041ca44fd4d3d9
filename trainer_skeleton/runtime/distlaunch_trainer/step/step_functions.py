"""The compiled functions of a model: executions of several steps, and the results of its metrics.

The moving statistics of batch normalization differ between replicas until they are read, and are
averaged then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.input.batches import BatchForm
from distlaunch_trainer.keras_compat import keras_optimizers, keras_random

from .all_reduce import replica_id
from .model_replicas import ModelReplicas
from .random_draws import refuse_other_draws
from .replica_metrics import StepLogs
from .step_context import StepRows
from .step_timing import host_variable
from .training_step import TrainingStep

MAX_SKIPPED = 50
"""Updates in a row that may be skipped with loss scaling: it halves the scale at each, and one of
2**-35 of that at the start helps no gradient."""


class Execution(NamedTuple):
    """The results of several training steps that were executed together, as scalars and vectors."""

    loss: tf.Tensor  # of the last step, over all replicas
    # The first step whose loss was not finite, from 0, or -1. With loss scaling the first one that
    # ends `MAX_SKIPPED` steps without an update.
    not_finite: tf.Tensor
    steps: tf.Tensor  # 0 if a task signaled to stop
    rows: tf.Tensor  # of all steps, over all replicas
    # Summed over the replicas (shape [3]), and the global rows of the first step by each replica,
    # if the data may end before.
    signals: tf.Tensor
    other_logs: tf.Tensor  # of the last step, that are no metrics (shape [n])


class StepFunctions:
    """The compiled functions of a model on all replicas."""

    def __init__(self, replicas: ModelReplicas) -> None:
        self.replicas, model = replicas, replicas.model
        # By `additivity.compare_parts`: with `trains` or without, and how many tensors of a batch.
        self.compared: set[tuple[bool, int]] = set()
        if keras_random.is_same():
            if model.run_eagerly and replicas.count > 1:  # its draws cannot be checked before
                raise ModelError("--same-random needs compiled steps: leave run_eagerly=True out")
            with replicas.strategy.scope():
                keras_random.global_generator()  # replicas are traced where none can be created
        keras_optimizers.disable_gradient_aggregation(model.optimizer)
        keras_optimizers.use_cross_replica_cond()
        self._training_step = TrainingStep(replicas)
        self._evaluation_logs = StepLogs()
        self.timer = replicas.timer
        self._updates = self._skipped = None
        if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
            self._updates = keras_optimizers.schedule_step(model.optimizer)
            self._last_update, self._skipped = host_variable(0), host_variable(0)
        self._last_logs: tuple[StepLogs, tf.Tensor] | None = None
        self.graph: tf.Graph | None = None  # of training steps, with full batches if there are any
        compiled = partial(tf.function, autograph=False, reduce_retracing=True)
        self._train_function = self._train if model.run_eagerly else compiled(self._train)
        self._test_function = self._evaluate if model.run_eagerly else compiled(self._evaluate)
        run, metrics = replicas.run, replicas.metrics
        self._results_function = tf.function(partial(run, metrics.results), autograph=False)
        self.metric_sums = tf.function(partial(run, metrics.sums), autograph=False)

    def train(
        self, batches: Any, steps: tf.Tensor, signals: tf.Tensor, **options: Any
    ) -> Execution:
        """Train some steps (scalar, int32) on all replicas, or none if a task signals to stop.

        `batches` is their iterator, or one batch. The control signals of this task (shape [3]) are
        whether to end the training and a vote to stop the run, both for all tasks if the sum is
        above 0, and a number for the others.

        The options are `has_empty_replicas` (default: False), `form` of the batches (default:
        "divided") and `may_end` (default: False). Steps in which some replica has no row are
        compiled apart: they copy all statistics and metrics, to restore them where there are no
        rows. If the data may end, it is one step, or none where they have ended or differ between
        tasks.
        """
        if self._training_step.accumulation is not None:
            self._training_step.accumulation.share()
        return self._train_function(batches, steps, signals, **options)

    def trace(self, *arguments: Any, **options: Any) -> tf.Graph | None:
        """Trace `train` for these arguments; return the graph, or None if there is none."""
        if self._train_function == self._train or self.replicas.is_compiled:
            return None
        return self._train_function.get_concrete_function(*arguments, **options).graph

    def keep_logs(self, execution: Execution) -> None:
        """Take the logs that are no metrics from an execution that trained some steps."""
        self._last_logs = self._training_step.logs, execution.other_logs

    def evaluate(self, batches: Any, steps: tf.Tensor, **options: Any) -> tf.Tensor | None:
        """Evaluate some steps on all replicas, with the options of `train`; the metrics hold all.

        If the data may end, return the global rows that each replica has of the step.
        """
        others, rows = self._test_function(batches, steps, **options)
        self._last_logs = self._evaluation_logs, others
        return rows

    def logs(self) -> dict[str, Any]:
        """Return the logs of the steps so far: numbers, or arrays if a metric has several."""
        metrics = self._results_function()
        logs, others = self._last_logs or (self._training_step.logs, None)
        merged = dict(metrics) if others is None else logs.merge(metrics, others)
        results = {name: np.asarray(value, float) for name, value in merged.items()}
        return {name: v if v.size != 1 else v.item() for name, v in results.items()}

    def synchronize(self) -> None:
        """Give all replicas the same state, before the model or optimizer is read.

        That is for validation, callbacks and checkpoints. Each replica has moving statistics of its
        own rows, of which the mean is taken, and may accumulate gradients, which are summed.
        """
        if self.replicas.normalizations.moving_statistics:
            self.replicas.average_statistics()
        if self._training_step.accumulation is not None:
            self._training_step.accumulation.all_reduce()

    def _train(
        self,
        batches: Any,
        steps: tf.Tensor,
        signals: tf.Tensor,
        *,
        has_empty_replicas: bool = False,
        form: BatchForm = "divided",
        may_end: bool = False,
    ) -> Execution:
        if not (tf.executing_eagerly() or (self.graph and has_empty_replicas)):
            self.graph = tf.compat.v1.get_default_graph()
        get_batch, rows = self._getter(batches, form, may_end)
        # In the graph, so that no task waits in Python; and first, so that all stop at one step.
        signals = self.replicas.run(self._all_reduce, signals, rows)
        steps = tf.where(tf.reduce_any(signals[:2] > 0), 0, steps)
        if may_end:
            steps = tf.where(_is_like_on_all(signals[3:]), steps, 0)
        first = self.timer.start(steps) if self.timer else tf.constant(0)

        def train(
            number: tf.Tensor, _: tf.Tensor, not_finite: tf.Tensor, rows: tf.Tensor, __: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            batch, loss, others = self._timed_step(first + number, get_batch, has_empty_replicas)
            is_first = tf.logical_and(not_finite < 0, self._is_lost(loss))
            not_finite = tf.where(is_first, number, not_finite)
            return number + 1, loss, not_finite, rows + self.replicas.first(batch[2]), others

        loss, rows = tf.constant(0.0), tf.constant(0, tf.int64)
        loss, not_finite, rows, others = _repeat(train, steps, loss, tf.constant(-1), rows)
        self._check_draws()
        if self._training_step.has_local_loss:
            loss, not_finite = self.replicas.run(self.replicas.agree_on_loss, loss, not_finite)
        return Execution(loss, not_finite, steps, rows, signals, others)

    def _is_lost(self, loss: tf.Tensor) -> tf.Tensor:
        """Return whether training a step did not work, and will not."""
        is_good = tf.math.is_finite(loss)
        if self._updates is None or self._skipped is None:
            return ~is_good
        custom = self.replicas.custom
        if not (custom.has_train_step or custom.function):  # which may use other optimizers
            update = tf.cast(self._updates.value, tf.int32)
            is_good = tf.not_equal(update, self._last_update)
            self._last_update.assign(update)
        skipped = tf.where(is_good, 0, self._skipped + 1)
        self._skipped.assign(skipped)
        return tf.equal(skipped, MAX_SKIPPED)

    def _timed_step(
        self, number: tf.Tensor, get_batch: Callable[[], Any], has_empty_replicas: bool
    ) -> tuple[Any, tf.Tensor, tf.Tensor]:
        """Train on the next batch; return it, the loss and the other logs."""
        train = partial(self._training_step, has_empty_replicas=has_empty_replicas)
        if self.timer is None:
            batch = get_batch()
            return batch, *train(batch)
        return self.timer.time_step(number, get_batch, train, self.replicas.strategy.run)

    def _getter(
        self, batches: Any, form: BatchForm, may_end: bool
    ) -> tuple[Callable[[], Any], Any]:
        """Return a function that returns the next batch, divided among the replicas.

        If the data `may_end`, the batch is read here, and its global rows are returned too: -1 at
        the end.
        """
        replicas = self.replicas
        replicas.has_divided_rows = form in {"divided", "by_task", "same"}
        replicas.divides_by_task = form == "by_task"
        if may_end and form == "whole":
            optional = batches.get_next_as_optional()  # on all replicas, if on some
            get_next, rows = optional.get_value, tf.cast(optional.has_value(), tf.int64) - 1
        elif may_end:
            batch = batches.get_next()
            get_next, rows = (lambda: batch), replicas.first(batch[2])
        else:
            get_next, rows = getattr(batches, "get_next", lambda: batches), None
        if form in {"divided", "by_task"}:
            return get_next, rows
        divide = partial(replicas.count_rows, form=form)
        return lambda: replicas.strategy.run(divide, (get_next(),)), rows

    def _all_reduce(self, signals: tf.Tensor, rows: tf.Tensor | None) -> tf.Tensor:
        """Return the sums of signals, and the rows that each replica gives; called on each."""
        if rows is not None:
            own = tf.one_hot(replica_id(), self.replicas.count) * tf.cast(rows, tf.float32)
            signals = tf.concat([signals, own], 0)
        return self.replicas.all_reduce(signals)

    def _evaluate(
        self,
        batches: Any,
        steps: tf.Tensor,
        *,
        has_empty_replicas: bool = False,
        form: BatchForm = "divided",
        may_end: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        get_batch, rows = self._getter(batches, form, may_end)
        if may_end:
            rows = self.replicas.run(self._all_reduce, tf.zeros([0]), rows)
            steps = tf.where(_is_like_on_all(rows), steps, 0)

        def evaluate(number: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, ...]:
            batch = get_batch()
            others = self.replicas.run(self._evaluate_replica, batch, has_empty_replicas)
            return number + 1, others

        (others,) = _repeat(evaluate, steps)
        self._check_draws()
        return others, rows

    def _check_draws(self) -> None:
        replicas = self.replicas
        if replicas.count > 1 and replicas.has_divided_rows and keras_random.is_same():
            refuse_other_draws(tf.compat.v1.get_default_graph())

    @tf.autograph.experimental.do_not_convert
    def _evaluate_replica(self, batch: Any, has_empty_replicas: bool) -> tf.Tensor:
        """Evaluate one replica's part of a step; return the logs that are no metrics."""
        replicas = self.replicas
        with replicas.step(batch, may_be_empty=has_empty_replicas) as (data, rows):
            return replicas.mean_over_rows(self._count(data, rows), rows)

    def _count(self, data: Any, rows: StepRows) -> tf.Tensor:
        """Count a replica's rows in the metrics; return its logs that are no metrics."""
        replicas, logs = self.replicas, self._evaluation_logs
        if replicas.custom.has_test_step:
            with replicas.unchanged_without_rows(rows):
                results = replicas.custom.test(data, rows)
            names = replicas.custom.metric_names
            return replicas.metrics.other_numbers(logs, "test_step", results, names)
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        with replicas.unchanged_without_rows(rows):
            predicted = replicas.losses.outputs(x, rows, training=False)
            share = replicas.losses.share(x, y, predicted, weights, rows, training=False)
            others = replicas.metrics.count(logs, x, y, predicted, weights)
        replicas.metrics.count_loss(share.loss_to_report * replicas.count, rows)
        return others


def _is_like_on_all(rows: tf.Tensor) -> tf.Tensor:
    """Return whether a step has a batch, with as many rows by each replica."""
    least = tf.reduce_min(rows)
    return (least >= 0) & tf.equal(least, tf.reduce_max(rows))


def _repeat(
    step: Callable[..., tuple[tf.Tensor, ...]], steps: tf.Tensor, *values: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    """Run ``step`` some times on its number, scalars and other logs (shape [n]); return the last.

    As AutoGraph would write the loop, without the tenth of a second that it takes to do so.
    """
    others = tf.zeros([0], tf.float64)
    first = (tf.constant(0), *values, others)
    shapes = (*(value.shape for value in first[:-1]), tf.TensorShape([None]))
    _, *last = tf.while_loop(lambda number, *_: number < steps, step, first, shapes)
    return tuple(last)
