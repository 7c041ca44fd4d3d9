"""What a replica's rows count for in a step of the global batch.

A step function of Keras or of the script runs on the rows of one replica. Its gradients are
multiplied by the replica's fraction of the rows and summed over the replicas before the optimizer
clips and applies them; so any loss that is a mean over the rows has the gradient of the global
batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.custom_steps import sum_weighted, weight_scalars
from distlaunch_trainer.losses import StepRows, current_rows, normalize_globally
from distlaunch_trainer.normalization import BatchNormalizations
from distlaunch_trainer.optimizer import use_cross_replica_cond
from distlaunch_trainer.same_random import BatchRows, constant_rows, drawing_for

from .batches import OF_TASK, are_parts, row_count, unpack_batch

StepFunction = Callable[[Any], Any]

_applying = threading.local()  # a replica is traced in a thread of its own


def install() -> None:
    """Weigh the gradients of all optimizers in step functions that `weighted` returns."""
    use_cross_replica_cond()
    for kind in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer):
        kind.apply = _weighted_apply(kind.apply)


def weighted(model: keras.Model, step: StepFunction, *, average_logs: bool) -> StepFunction:
    """Return a step function whose results count for a replica's fraction of the global batch.

    Parameters
    ----------
    model
        The model that the step function trains or evaluates, built.
    step
        Is called with a batch of one replica, and returns logs.
    average_logs
        Whether to average the logs over the rows of all replicas, instead of returning those of
        this replica.
    """
    normalizations = BatchNormalizations(model, tf.distribute.get_strategy().num_replicas_in_sync)

    weight_scalars(model.metrics)

    def weighted_step(batch: Any) -> Any:
        data, rows = unpack_batch(batch)
        before = _values(_changed(model, normalizations)) if rows.may_be_empty else []
        synchronized = normalizations.in_replica(rows.local_rows, rows.local_fraction)
        with normalize_globally(rows), synchronized, drawing_for(_contiguous(data, batch, rows)):
            logs = step(_with_any_rows(data))
        for variable, value in before:
            variable.assign(tf.where(rows.local_rows > 0, variable.value, value))
        return _averaged(logs, rows) if average_logs else logs

    return weighted_step


def gathered(step: StepFunction) -> StepFunction:
    """Return a step function that returns the predictions of all replicas, in the rows' order."""

    def gathered_step(batch: Any) -> Any:
        if not are_parts(batch):  # predict_on_batch(): every replica has all rows, on one task too
            return step(batch)
        data, rows = unpack_batch(batch)
        with drawing_for(_contiguous(data, batch, rows)):
            outputs = step(data)
        return tf.nest.map_structure(lambda output: _gather(output[: rows.local_rows]), outputs)

    return gathered_step


def drawing(step: StepFunction) -> StepFunction:
    """Return a step function of an only replica that draws by `same_random` what several draw."""

    def drawing_step(batch: Any) -> Any:
        rows = row_count(batch)
        with drawing_for(BatchRows(0, 1, rows, rows, constant_rows(batch))):
            return step(batch)

    return drawing_step


def _with_any_rows(data: Any) -> Any:
    """Return data without a static number of rows, by which sums over the rows are known."""
    return tf.nest.map_structure(
        lambda value: (
            tf.compat.v1.placeholder_with_default(value, [None, *value.shape[1:]])
            if isinstance(value, tf.Tensor) and value.shape.rank
            else value
        ),
        data,
    )


def _contiguous(data: Any, batch: Any, rows: StepRows) -> BatchRows | None:
    """Return which rows of a global batch a replica has, None for all of a batch of its own."""
    if not are_parts(batch) or OF_TASK in batch[0]:
        return None
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    first = -(-tf.cast(replica, tf.int64) * rows.global_rows // rows.replicas)
    return BatchRows(first, 1, rows.local_rows, rows.global_rows, constant_rows(data))


class StatisticsAverager:
    """Averages the moving statistics that each replica keeps of its own rows."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy
        self._functions: dict[tuple[int, ...], Callable[[], None]] = {}

    def average(self, model: keras.Model) -> None:
        """Give all replicas the same moving statistics; a collective."""
        replicas = self._strategy.num_replicas_in_sync
        variables = BatchNormalizations(model, replicas).moving_statistics
        if variables:
            key = tuple(id(variable) for variable in variables)
            if key not in self._functions:
                self._functions[key] = self._function(variables)
            self._functions[key]()

    def _function(self, variables: list[Any]) -> Callable[[], None]:
        def average() -> None:
            context = tf.distribute.get_replica_context()
            values = [tf.identity(variable.value) for variable in variables]
            means = context.all_reduce(tf.distribute.ReduceOp.MEAN, values)
            for variable, mean in zip(variables, means, strict=True):
                variable.assign(mean)

        return tf.function(lambda: self._strategy.run(average), autograph=False)


def _weighted_apply(apply: Callable[..., Any]) -> Callable[..., Any]:
    def weighted_apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
        rows = current_rows()
        # LossScaleOptimizer applies the gradients by another optimizer.
        if rows is None or getattr(_applying, "is_inner", False):
            return apply(optimizer, grads, trainable_variables)
        keras_compat.disable_gradient_aggregation(optimizer)
        variables = None if trainable_variables is None else list(trainable_variables)
        summed = sum_weighted(list(grads), variables, rows.weigh)
        # At the end of the data there are no gradients, and the optimizer must not count a step.
        # TensorFlow cannot create variables under control dependencies.
        order = _tensors(summed) if optimizer.built else []
        with _inner_optimizer(), tf.control_dependencies(order):
            return apply(optimizer, summed, variables)

    return weighted_apply


@contextmanager
def _inner_optimizer() -> Iterator[None]:
    _applying.is_inner = True
    try:
        yield
    finally:
        _applying.is_inner = False


def _tensors(gradients: list[Any]) -> list[tf.Tensor]:
    present = [gradient for gradient in gradients if gradient is not None]
    return [g.values if isinstance(g, tf.IndexedSlices) else g for g in present]


def _gather(value: tf.Tensor) -> tf.Tensor:
    return tf.distribute.get_replica_context().all_gather(value, axis=0)


def _averaged(logs: Any, rows: StepRows) -> Any:
    """Return logs averaged over the rows of all replicas; those that are no floats as they are."""
    context = tf.distribute.get_replica_context()

    def average(value: Any) -> Any:
        value = tf.convert_to_tensor(value)
        if not value.dtype.is_floating:
            return value
        return context.all_reduce(tf.distribute.ReduceOp.SUM, rows.weigh(value))

    return tf.nest.map_structure(average, logs)


def _changed(model: keras.Model, normalizations: BatchNormalizations) -> list[Any]:
    """Return the variables that a step changes by the rows of a replica alone."""
    layers = [layer for layer in keras_compat.all_layers(model) if layer.trainable]
    layers = [layer for layer in layers if layer not in normalizations.synchronized]
    variables = [v for layer in layers for v in keras_compat.own_non_trainable_variables(layer)]
    return variables + [v for metric in model.metrics for v in metric.variables]


def _values(variables: list[Any]) -> list[tuple[Any, tf.Tensor]]:
    return [(variable, tf.identity(variable.value)) for variable in variables]
