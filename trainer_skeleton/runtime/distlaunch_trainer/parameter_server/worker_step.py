"""A training step on a worker."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.step.custom_steps import overrides
from distlaunch_trainer.step.losses import Losses
from distlaunch_trainer.step.replica_metrics import ReplicaMetrics, StepLogs
from distlaunch_trainer.step.step_context import StepRows

from .server_variables import ServerVariables


class StepResult(NamedTuple):
    """What a step returns."""

    loss: float  # the mean over its rows
    rows: int
    metrics: list[np.ndarray]  # what it adds to their variables


class WorkerStep:
    """A training step: reads the weights from the servers, and applies gradients there.

    The chief's model is called with values from the servers in place of its own, so nothing of it
    changes. What the step adds to the metrics is returned for the chief to sum.
    """

    def __init__(
        self, model: keras.Model, variables: ServerVariables, strategy: tf.distribute.Strategy
    ) -> None:
        _check_can_train(model)
        self._model = model
        self._variables = variables
        self._strategy = strategy
        self._losses = Losses(model)
        self._metrics = ReplicaMetrics(model, tf.distribute.get_strategy())
        # Of an iterator over batches, and of the steps scheduled before.
        self.function = tf.function(self._step, autograph=False)

    def result(self, packed: np.ndarray) -> StepResult:
        """Return the result of a step, which comes as one vector."""
        loss, rows, *_ = packed[:2]
        metrics, start = [], 2
        for variable in self._metrics.variables:
            size = int(np.prod(variable.shape))
            values = packed[start : start + size].reshape(variable.shape)
            metrics.append(values.astype(variable.dtype))
            start += size
        return StepResult(float(loss), int(rows), metrics)

    def _step(self, batches: Any, step: tf.Tensor) -> tf.Tensor:
        return self._strategy.run(self._train, args=(batches.get_next(), step))

    @tf.autograph.experimental.do_not_convert
    def _train(self, batch: Any, step: tf.Tensor) -> tf.Tensor:
        data, local_rows, *_ = batch
        rows = StepRows(local_rows, local_rows, 1, False)
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        trainable, others = self._variables.trainable(), self._variables.non_trainable()
        zeros = [(v, tf.zeros(v.shape, v.dtype)) for v in self._metrics.variables]
        values = [value for _, value in trainable]
        state = [*trainable, *others, *zeros]
        with tf.GradientTape() as tape:
            tape.watch(values)
            with keras.StatelessScope(state, collect_losses=True) as scope:
                predicted = self._model(x, training=True)
                share = self._losses.share(x, y, predicted, weights, rows, training=True)
                with tape.stop_recording():
                    self._metrics.count_loss(share.loss_to_report, rows)
                    self._metrics.count(StepLogs(), x, y, predicted, weights)
            loss = self._variables.optimizer.scale_loss(share.loss_to_differentiate)
        gradients = tape.gradient(loss, values)
        if values and all(gradient is None for gradient in gradients):
            raise ModelError("no weight of the model has a gradient: see its layers and its loss")
        if values:
            self._variables.apply(gradients, step)
        updated = {id(v): scope.get_current_value(v) for v, _ in others}
        changed = {id(v) for v, value in others if updated[id(v)] is not value}
        self._variables.assign_non_trainable({key: updated[key] for key in changed})
        counts = [scope.get_current_value(v) for v in self._metrics.variables]
        parts = [share.loss_to_report, local_rows, *counts]
        return tf.concat([tf.reshape(tf.cast(part, tf.float64), [-1]) for part in parts], 0)


def _check_can_train(model: keras.Model) -> None:
    name = type(model).__name__
    for method in ("train_step", "make_train_function"):
        if overrides(model, method):
            raise ModelError(
                f"{name}.{method}() updates the chief's weights, and with parameter servers the "
                "workers update those of the servers: override compute_loss() instead, or train "
                "without parameter servers"
            )
    if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        raise ModelError(
            "mixed_float16 scales losses by a variable that asynchronous workers would change "
            "against each other: use --precision mixed_bfloat16 or float32"
        )
    if model.optimizer.gradient_accumulation_steps:
        raise ModelError(
            "gradient_accumulation_steps is not for parameter servers, whose workers would mix "
            "their sums: use a larger --batch-size"
        )
