"""One step of evaluation, on one replica."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from .model_replicas import ModelReplicas
from .replica_metrics import flatten
from .same_random import draws_for_batch
from .step_logs import StepLogs


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
    @draws_for_batch
    def __call__(self, batch: Any, has_empty_replicas: bool) -> tf.Tensor:
        """Evaluate one replica's part of a step; return the logs that are no metrics."""
        replicas = self.replicas
        data, rows = replicas.unpack(batch, may_be_empty=has_empty_replicas)
        before = replicas.local_updates.snapshot(rows)
        if replicas.custom.has_test_step:
            logs = replicas.custom.test(data, rows)
            replicas.local_updates.rescale(before, rows)
            others = self.logs.vector(flatten(logs), replicas.metrics.local_results())
        else:
            x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
            predicted = self._model(x, training=False)
            share = replicas.losses.share(x, y, predicted, weights, rows, training=False)
            replicas.local_updates.rescale(before, rows)
            replicas.metrics.count_local_loss(share.loss_to_report, rows)
            others = replicas.metrics.count(self.logs, rows, x, y, predicted, weights)
        return replicas.mean_over_rows(others, rows) if self.logs.others else others
