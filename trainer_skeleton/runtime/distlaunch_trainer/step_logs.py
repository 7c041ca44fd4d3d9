"""The logs of a step: metrics, and other numbers that a model's methods return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf


class StepLogs:
    """The numbers that are in a step's logs beside the metrics, by which Keras logs its last step.

    Keras logs the metrics if the logs have their names and no others, and otherwise the logs of the
    last step. Here a name that a metric has is always that metric's.

    Attributes
    ----------
    names : list of str
        The names in the logs, once a step was traced; empty if they are those of the metrics.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._others: list[str] = []

    @property
    def others(self) -> list[str]:
        """The names in the logs that no metric has."""
        return self._others

    def vector(self, logs: Mapping[str, Any], metrics: Mapping[str, Any]) -> tf.Tensor:
        """Return the numbers of one replica's logs that are not metrics (float64, shape [n])."""
        is_metrics_only = logs.keys() == metrics.keys()
        self.names = [] if is_metrics_only else list(logs)
        self._others = [name for name in self.names if name not in metrics]
        numbers = [tf.reduce_mean(tf.cast(logs[name], tf.float64)) for name in self._others]
        return tf.stack(numbers) if numbers else tf.zeros([0], tf.float64)

    def merge(self, metrics: Mapping[str, Any], vector: Any) -> dict[str, Any]:
        """Return the logs of the results of the metrics and the last step's other numbers."""
        if not self.names:
            return dict(metrics)
        others = dict(zip(self._others, keras.ops.convert_to_numpy(vector).tolist(), strict=True))
        return {name: others[name] if name in others else metrics[name] for name in self.names}
