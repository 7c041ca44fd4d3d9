"""Variables that a replica changes by its rows alone, scaled or restored where rows are missing."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat

from .losses import per_step_counters
from .normalization import BatchNormalizations
from .replica_metrics import ReplicaMetrics
from .step_context import StepRows

Snapshot = list[tuple[Any, tf.Tensor]]
"""Variables, and the values that they had."""


class LocalUpdates:
    """Corrects what the forward pass and the loss of one replica have changed.

    Parameters
    ----------
    model
        A compiled model, built.
    normalizations, metrics
        Its batch normalizations and its metrics.
    """

    def __init__(
        self, model: keras.Model, normalizations: BatchNormalizations, metrics: ReplicaMetrics
    ) -> None:
        self._model = model
        self._normalizations = normalizations
        self._metrics = metrics
        self._per_step_counters = per_step_counters(model)

    def snapshot(self, rows: StepRows) -> Snapshot:
        """Return the variables that have to be corrected, and their values."""
        changed = self._per_step_counters
        if rows.may_be_empty:
            changed = [*self._local_statistics(), *self._metrics.variables]
        return [(variable, tf.identity(variable.value)) for variable in changed]

    def rescale(self, before: Snapshot, rows: StepRows) -> None:
        """Scale what this replica counted per step by its rows, and undo updates without rows."""
        for variable, value in before:
            if any(variable is counter for counter in self._per_step_counters):
                change = (variable.value - value) * rows.local_fraction(variable.dtype)
                variable.assign(value + change)
            else:
                variable.assign(tf.where(rows.local_rows > 0, variable.value, value))

    def _local_statistics(self) -> list[Any]:
        """Return the weights that a replica changes by its rows alone."""
        common = [v for layer in self._normalizations.synchronized for v in layer.variables]
        return [v for v in statistics(self._model) if not any(v is other for other in common)]


def statistics(model: keras.Model) -> list[Any]:
    """Return the weights that a forward pass may change; frozen layers change none."""
    layers = [layer for layer in keras_compat.all_layers(model) if layer.trainable]
    return [v for layer in layers for v in keras_compat.own_non_trainable_variables(layer)]
