"""The logs that the script's callbacks get after a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer.callbacks import TEST_HOOKS, TRAIN_HOOKS, has_hook
from distlaunch_trainer.cluster import Cluster
from distlaunch_trainer.custom_steps import overrides
from distlaunch_trainer.replica_metrics import ReplicaMetrics


class BatchLogs(keras.callbacks.Callback):
    """The first callback of a call: puts the metrics of all replicas into the logs of a batch.

    Keras's step returns the metrics of one replica. A step of the model's own returns logs that are
    averaged over the replicas already.

    Parameters
    ----------
    strategy
        The strategy of the cluster.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        super().__init__()
        self._strategy = strategy
        self._results: Callable[[], dict[str, tf.Tensor]] | None = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        self._update(logs, "train_step")

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        self._update(logs, "test_step")

    def _update(self, logs: dict[str, Any], step: str) -> None:
        if overrides(self.model, step):
            return
        if self._results is None:
            metrics = ReplicaMetrics(self.model, self._strategy)
            self._results = tf.function(
                lambda: self._strategy.run(metrics.results), autograph=False
            )
        for name, value in self._results().items():
            if name in logs:
                result = self._strategy.experimental_local_results(value)[0].numpy()
                logs[name] = result if result.ndim else float(result)


def batch_logs(
    callbacks: list[keras.callbacks.Callback], cluster: Cluster
) -> list[keras.callbacks.Callback]:
    """Return a `BatchLogs` if a callback of any task needs one; all tasks must call this."""
    if cluster.replicas == 1:
        return []
    own = any(has_hook(callback, TRAIN_HOOKS + TEST_HOOKS) for callback in callbacks)
    needed = cluster.rendezvous.exchange("batch hooks", own, "to call fit() or evaluate()")
    return [BatchLogs(cluster.strategy)] if any(needed) else []
