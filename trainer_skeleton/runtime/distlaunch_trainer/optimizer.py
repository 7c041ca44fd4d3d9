"""Keras's optimizers on several replicas.

They get all-reduced gradients: Keras would clip before its own all-reduce. Branches that depend on
the step (gradient accumulation, averages that replace the weights) are taken for all replicas at
once, because TensorFlow cannot update mirrored variables in a branch inside of a replica.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from . import keras_compat


def use_cross_replica_cond() -> None:
    """Let Keras's optimizers branch for all replicas at once, if there are several."""
    if not isinstance(keras_compat.optimizer_operations(), _Operations):
        keras_compat.replace_optimizer_operations(_Operations)


class _Operations:
    """Keras's operations with a ``cond`` that may update mirrored variables."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)

    def cond(self, condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """Run one of two functions that return nothing."""
        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return self._theirs.cond(condition, then, otherwise)

        def on_each_replica(strategy: tf.distribute.Strategy, condition: Any) -> None:
            def run(function: Callable[[], Any]) -> tf.Tensor:
                strategy.extended.call_for_each_replica(function)
                return tf.constant(True)

            of_one = strategy.experimental_local_results(condition)[0]
            tf.cond(of_one, lambda: run(then), lambda: run(otherwise))

        return context.merge_call(on_each_replica, args=(tf.convert_to_tensor(condition),))
