"""The metrics of a model, of which each replica counts its own rows until they are read."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat

from . import step_context
from .all_reduce import on_first_replica, sum_over_replicas
from .custom_steps import overrides
from .metric_updates import watch
from .step_context import StepRows


class ReplicaMetrics:
    """The metrics of a model, its mean loss among them.

    Methods but `restore` are to be called in a replica's part of a step.
    """

    def __init__(self, model: keras.Model, strategy: tf.distribute.Strategy) -> None:
        self._model = model  # compiled, and built in the strategy's scope
        self._strategy = strategy
        self._replicas = strategy.num_replicas_in_sync
        self._loss_tracker = keras_compat.loss_tracker(model)

    @property
    def variables(self) -> list[Any]:
        """The variables of all metrics."""
        return [variable for metric in self._model.metrics for variable in metric.variables]

    def watch(self) -> None:
        """Have replicas update the metrics that there are by now so that their sums are right."""
        metrics = self._model.metrics
        watch(part for each in metrics for part in getattr(each, "metrics", [each]))

    def count_loss(self, loss: tf.Tensor, rows: StepRows) -> None:
        """Count the loss of a step, the mean of what all replicas give, once for each row."""
        weight = tf.cast(rows.global_rows, loss.dtype) * (1 / self._replicas)
        if self._loss_tracker is not None:
            with step_context.extended(rows=None):
                self._loss_tracker.update_state(loss, sample_weight=weight)

    def count(self, logs: StepLogs, *data: Any) -> tf.Tensor:
        """Update the metrics; return the numbers that ``compute_metrics()`` returns beside them.

        The data are inputs, targets, outputs and sample weights.
        """
        x, y, predicted, weights = data
        result = self._model.compute_metrics(x, y, predicted, sample_weight=weights)
        if not overrides(self._model, "compute_metrics"):
            return tf.zeros([0], tf.float64)
        return self.other_numbers(logs, "compute_metrics", result)

    def other_numbers(
        self, logs: StepLogs, method: str, result: Any, metric_names: Any = None
    ) -> tf.Tensor:
        """Return the numbers that a method of the model returned beside the metrics.

        They are a warning, but for ``train_step()``, of which one has come as the model was built.
        """
        vector = logs.vector(flatten(result), self.local_results(), metric_names)
        if logs.other_names and self._replicas > 1 and method != "train_step":
            warnings.warn(note_of_numbers(self._model, method, logs.other_names), stacklevel=2)
        return vector

    def local_results(self) -> dict[str, tf.Tensor]:
        """Return the results of a replica's counts."""
        return flatten(self._model.get_metrics_result())

    @tf.autograph.experimental.do_not_convert
    def results(self) -> dict[str, tf.Tensor]:
        """Return the results over all replicas; the counts of each replica are not changed."""
        counts = [tf.identity(variable.value) for variable in self.variables]
        self._set(self.sums())
        results = self.local_results()
        self._set(counts)
        return results

    @tf.autograph.experimental.do_not_convert
    def sums(self) -> list[tf.Tensor]:
        """Return the variables, summed over the replicas."""
        values = [tf.identity(variable.value) for variable in self.variables]
        if self._replicas == 1 or not values:
            return values
        return sum_over_replicas(values)

    @tf.function(autograph=False)
    def restore(self, sums: list[tf.Tensor]) -> None:
        """Set the metrics to the sums over all replicas of a checkpoint."""

        def restore(values: list[tf.Tensor]) -> None:
            self._set([*map(on_first_replica, values)])

        self._strategy.run(restore, args=(sums,))

    def _set(self, values: list[tf.Tensor]) -> None:
        for variable, value in zip(self.variables, values, strict=True):
            variable.assign(value)


def note_of_numbers(model: keras.Model, method: str, names: Iterable[str]) -> str:
    """Return a warning of numbers in the logs of a step that are no metrics."""
    return (
        f"{type(model).__name__}.{method}() returns {', '.join(names)}, which no metric has: the "
        f"logs have the last step's mean over the replicas, weighted by their rows"
    )


def flatten(results: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Return results with those of metrics that return a dict, as ``fit`` logs them."""
    flat = {}
    for name, value in results.items():
        flat |= flatten(value) if isinstance(value, dict) else {name: tf.identity(value)}
    return flat


class StepLogs:
    """The numbers that are in a step's logs beside the metrics, by which Keras logs its last step.

    Keras logs the metrics if the logs have their names and no others, and otherwise the logs of the
    last step. Here a name that a metric has is always that metric's, and what a metric of another
    name has returned is that of all replicas.
    """

    def __init__(self) -> None:
        # Of each name in the logs the metric that has it, or None, once a step was traced; empty if
        # the logs are those of the metrics.
        self._metrics: dict[str, str | None] = {}

    @property
    def other_names(self) -> list[str]:
        """The names in the logs that no metric has, once a step was traced."""
        return [name for name, metric in self._metrics.items() if metric is None]

    def vector(
        self,
        logs: Mapping[str, Any],
        metrics: Mapping[str, Any],
        metric_names: Mapping[str, str] | None = None,
    ) -> tf.Tensor:
        """Return the numbers of one replica's logs that are not metrics (float64, shape [n]).

        `metric_names` has the metrics of names in the logs that are not the metric's.
        """
        known = {name: name for name in metrics}
        for name, metric in (metric_names or {}).items():
            if metric in metrics:
                known.setdefault(name, metric)
        is_metrics_only = logs.keys() == metrics.keys()
        self._metrics = {} if is_metrics_only else {name: known.get(name) for name in logs}
        numbers = [tf.reduce_mean(tf.cast(logs[name], tf.float64)) for name in self.other_names]
        return tf.stack(numbers) if numbers else tf.zeros([0], tf.float64)

    def merge(self, metrics: Mapping[str, Any], vector: Any) -> dict[str, Any]:
        """Return the logs of the results of the metrics and the last step's other numbers."""
        if not self._metrics:
            return dict(metrics)
        others = iter(keras.ops.convert_to_numpy(vector).tolist())
        return {
            name: next(others) if metric is None else metrics[metric]
            for name, metric in self._metrics.items()
        }
