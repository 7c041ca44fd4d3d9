"""One step of training or evaluation, on one replica and on all of them together.

The loss of a step is that of the whole global batch, whatever number of replicas it is dealt to.
Keras gives each replica the mean over its own rows, regularisers added, times 1/R; with ``rows`` of
``global_rows`` rows a replica's share of the global loss is therefore

    (R · loss - regularisers) · rows / global_rows  +  regularisers / R

and the shares of all replicas sum to the loss that one worker has. Gradients are summed over the
replicas before the optimizer sees them, so that clipping acts on the gradient of the global batch.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from .errors import ModelError

_MEAN, _SUM = "mean", "sum"


class Steps:
    """The compiled functions of a model: blocks of training and evaluation steps, and results.

    Parameters
    ----------
    model
        A compiled Keras model, built in the strategy's scope.
    strategy
        The strategy that it was built in.
    may_lack_rows
        Whether some replica has no row in some step.
    """

    def __init__(
        self, model: keras.Model, strategy: tf.distribute.Strategy, may_lack_rows: bool
    ) -> None:
        self._model = model
        self._strategy = strategy
        self._replicas = strategy.num_replicas_in_sync
        self._may_lack_rows = may_lack_rows
        self._reduction = _reduction(model, self._replicas)
        self._loss_tracker = next((m for m in model.metrics if m.name == "loss"), None)
        _leave_summing_to_us(model.optimizer)
        self.train = tf.function(self._train)
        self.evaluate = tf.function(self._evaluate)
        self.results = tf.function(self._results)
        self.metric_sums = tf.function(self._metric_sums)

    @property
    def metric_variables(self) -> list[Any]:
        """The variables in which the metrics count; each replica counts its own rows."""
        return [variable for metric in self._model.metrics for variable in metric.variables]

    def _train(
        self, batches: Any, steps: tf.Tensor, votes: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Train ``steps`` steps.

        ``votes`` are this task's numbers (shape [2]); they are summed over the replicas on the
        gradients' way. Returns the last step's loss, the first step whose loss was not finite (or
        -1), and the summed votes.
        """
        report = tf.zeros([3])
        not_finite = tf.constant(-1)
        for number in tf.range(steps):
            reports = self._strategy.run(self._train_replica, args=(next(batches), votes))
            report = self._strategy.experimental_local_results(reports)[0]
            is_first = tf.logical_and(not_finite < 0, ~tf.math.is_finite(report[0]))
            not_finite = tf.where(is_first, number, not_finite)
        return report[0], not_finite, report[1:]

    @tf.autograph.experimental.do_not_convert
    def _train_replica(self, batch: Any, votes: tf.Tensor) -> tf.Tensor:
        data, rows, global_rows = batch
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        frozen = self._statistics() if self._may_lack_rows else ()
        with tf.GradientTape() as tape:
            predicted = self._model(x, training=True)
            share = self._share_of_loss(x, y, predicted, weights, rows, global_rows)
            scaled = self._model.optimizer.scale_loss(share)
        self._keep(frozen, rows)
        variables = self._model.trainable_variables
        gradients, share, votes = self._summed(tape.gradient(scaled, variables), share, votes)
        self._model.optimizer.apply(gradients, variables)
        self._count_loss(share, global_rows)
        self._count_metrics(rows, x, y, predicted, weights)
        return tf.concat([[tf.cast(share, tf.float32)], votes], 0)

    def _share_of_loss(  # noqa: PLR0917 - named as Keras names them
        self, x: Any, y: Any, predicted: Any, weights: Any, rows: tf.Tensor, global_rows: tf.Tensor
    ) -> tf.Tensor:
        """Return this replica's share of the global batch's loss; see the head of this module."""
        mean = self._local_loss(x, y, predicted, weights, training=True)
        regular = [v.regularizer(v) for v in self._model.trainable_variables if v.regularizer]
        regularisers = tf.cast(tf.add_n(regular), mean.dtype) if regular else 0.0
        part = tf.cast(rows, mean.dtype) / tf.cast(global_rows, mean.dtype)
        if self._reduction == _SUM:
            part = tf.cast(rows > 0, mean.dtype)
        return (mean - regularisers) * part + regularisers / self._replicas

    def _local_loss(self, x: Any, y: Any, predicted: Any, weights: Any, *, training: bool) -> Any:
        loss = self._model.compute_loss(
            x=x, y=y, y_pred=predicted, sample_weight=weights, training=training
        )
        return loss * self._replicas

    def _summed(
        self, gradients: list[Any], share: tf.Tensor, votes: tf.Tensor
    ) -> tuple[list[Any], tf.Tensor, tf.Tensor]:
        """Sum gradients, loss and votes over the replicas, in one exchange."""
        context = tf.distribute.get_replica_context()
        present = [tf.convert_to_tensor(g) for g in gradients if g is not None]
        if not present:
            raise ModelError("no weight of the model has a gradient: see its layers and its loss")
        extra = tf.concat([[tf.cast(share, present[0].dtype)], tf.cast(votes, present[0].dtype)], 0)
        if self._replicas > 1:
            *present, extra = context.all_reduce(tf.distribute.ReduceOp.SUM, [*present, extra])
        summed = iter(present)
        whole = [None if g is None else next(summed) for g in gradients]
        return whole, tf.cast(extra[0], share.dtype), tf.cast(extra[1:], tf.float32)

    def _count_loss(self, loss: tf.Tensor, global_rows: tf.Tensor) -> None:
        """Count the global loss once, on the first replica."""
        if self._loss_tracker is None:
            return
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        weight = tf.where(tf.equal(replica, 0), global_rows, 0)
        self._loss_tracker.update_state(loss, sample_weight=weight)

    def _count_metrics(self, rows: tf.Tensor, *data: Any) -> None:
        def count() -> tf.Tensor:
            x, y, predicted, weights = data
            self._model.compute_metrics(x, y, predicted, sample_weight=weights)
            return tf.constant(True)

        if self._may_lack_rows:
            tf.cond(rows > 0, count, lambda: tf.constant(False))
        else:
            count()

    def _statistics(self) -> list[tuple[Any, tf.Tensor]]:
        """Return the weights that a forward pass changes, and their values before it."""
        return [(v, tf.identity(v.value)) for v in self._model.non_trainable_weights]

    def _keep(self, frozen: Any, rows: tf.Tensor) -> None:
        """Undo what the one row of a replica without rows did to its statistics."""
        for variable, before in frozen:
            variable.assign(tf.where(rows > 0, variable.value, before))

    def _evaluate(self, batches: Any, steps: tf.Tensor) -> None:
        for _ in tf.range(steps):
            self._strategy.run(self._evaluate_replica, args=(next(batches),))

    @tf.autograph.experimental.do_not_convert
    def _evaluate_replica(self, batch: Any) -> None:
        data, rows, _ = batch
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        predicted = self._model(x, training=False)
        loss = self._local_loss(x, y, predicted, weights, training=False)
        if self._loss_tracker is not None:
            self._loss_tracker.update_state(loss, sample_weight=rows)
        self._count_metrics(rows, x, y, predicted, weights)

    def _results(self) -> dict[str, tf.Tensor]:
        """Return the metrics over all replicas' rows; what each has counted stays as it is."""
        return self._on_first_replica(self._results_replica)

    def _metric_sums(self) -> list[tf.Tensor]:
        """Return the metric variables, summed over the replicas."""
        return self._on_first_replica(self._sums_replica)

    def _on_first_replica(self, function: Any) -> Any:
        values = self._strategy.run(function)
        return tf.nest.map_structure(
            lambda value: self._strategy.experimental_local_results(value)[0], values
        )

    @tf.autograph.experimental.do_not_convert
    def _results_replica(self) -> dict[str, tf.Tensor]:
        own = [tf.identity(variable.value) for variable in self.metric_variables]
        self._set_metrics(self._sums_replica())
        results = {
            name: tf.identity(value) for name, value in self._model.get_metrics_result().items()
        }
        self._set_metrics(own)
        return results

    @tf.autograph.experimental.do_not_convert
    def _sums_replica(self) -> list[tf.Tensor]:
        values = [tf.identity(variable.value) for variable in self.metric_variables]
        if self._replicas == 1 or not values:
            return values
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, values)

    def _set_metrics(self, values: list[tf.Tensor]) -> None:
        for variable, value in zip(self.metric_variables, values, strict=True):
            variable.assign(value)

    @tf.function
    def restore_metrics(self, sums: list[tf.Tensor]) -> None:
        """Go on counting from what all replicas had counted together."""

        def restore(values: list[tf.Tensor]) -> None:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            is_first = tf.equal(replica, 0)
            self._set_metrics([tf.where(is_first, v, tf.zeros_like(v)) for v in values])

        self._strategy.run(restore, args=(sums,))


def _reduction(model: keras.Model, replicas: int) -> str:
    """Return how the model's losses are reduced over the rows of a batch."""
    losses = [loss for loss in keras.tree.flatten(model.loss) if loss is not None]
    kinds = {getattr(loss, "reduction", "sum_over_batch_size") for loss in losses}
    if kinds <= {"sum_over_batch_size", "mean", "auto"}:
        return _MEAN
    if kinds == {"sum"}:
        return _SUM
    if replicas == 1:
        return _MEAN
    raise ModelError(
        f"the losses' reductions {', '.join(sorted(map(str, kinds)))} are not supported on several "
        f"replicas: use 'sum_over_batch_size' for all, or 'sum' for all"
    )


def _leave_summing_to_us(optimizer: Any) -> None:
    """Keep Keras from summing gradients over replicas once more after it has clipped them."""
    while optimizer is not None:
        optimizer._all_reduce_sum_gradients = list  # noqa: SLF001 - Keras offers no other way
        optimizer = getattr(optimizer, "inner_optimizer", None)
