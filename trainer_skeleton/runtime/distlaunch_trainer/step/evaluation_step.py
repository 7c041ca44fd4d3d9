"""One step of evaluation, on one replica."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from .model_replicas import ModelReplicas
from .replica_metrics import StepLogs, flatten
from .step_context import StepRows


class EvaluationStep:
    """Counts a replica's rows of a batch in the metrics.

    Parameters
    ----------
    replicas
        The model.

    Attributes
    ----------
    logs
        The logs of the steps.
    """

    def __init__(self, replicas: ModelReplicas) -> None:
        self.replicas = replicas
        self._model = replicas.model
        self.logs = StepLogs()

    @tf.autograph.experimental.do_not_convert
    def __call__(self, batch: Any, has_empty_replicas: bool) -> tf.Tensor:
        """Evaluate one replica's part of a step; return the logs that are no metrics."""
        with self.replicas.step(batch, may_be_empty=has_empty_replicas) as (data, rows):
            others = self._count(data, rows)
            return self.replicas.mean_over_rows(others, rows) if self.logs.others else others

    def _count(self, data: Any, rows: StepRows) -> tf.Tensor:
        replicas = self.replicas
        before = replicas.local_updates.snapshot(rows)
        if replicas.custom.has_test_step:
            logs = replicas.custom.test(data, rows)
            replicas.local_updates.rescale(before, rows)
            return self.logs.vector(flatten(logs), replicas.metrics.local_results())
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        predicted = self._model(x, training=False)
        share = replicas.losses.share(x, y, predicted, weights, rows, training=False)
        replicas.local_updates.rescale(before, rows)
        replicas.metrics.count_local_loss(share.loss_to_report, rows)
        return replicas.metrics.count(self.logs, rows, x, y, predicted, weights)
