"""One step of training or evaluation, on one replica and on all of them together.

The loss of a step is that of the whole global batch, whatever number of replicas it is dealt to.
Each replica has the mean over its own rows, regularisers added; with ``rows`` of ``global_rows``
rows its share of the global loss is therefore

    (loss - regularisers) · rows / global_rows  +  regularisers / R

and the shares of all R replicas sum to the loss that one worker has. What is summed over the rows
has its sum for a share. Gradients are summed over the replicas before the optimizer
sees them, so that clipping acts on the gradient of the global batch; the averages that batch
normalisation keeps are averaged on the same way, so that every task has the same model.
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
        _check_can_train(model, self._replicas)
        self._reduction = _reduction(model, self._replicas)
        self._sums_activity = _sums_activity()
        self._averages = _averages(model) if self._replicas > 1 else []
        self._counted_by_step = _counted_by_step(model, self._reduction)
        self._loss_tracker = model._loss_tracker  # noqa: SLF001 - a metric of theirs may be "loss"
        _leave_summing_to_us(model.optimizer)
        _leave_scaling_to_us()
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
        before = self._values_before()
        with tf.GradientTape() as tape:
            predicted = self._model(x, training=True)
            share = self._share_of_loss(x, y, predicted, weights, rows, global_rows, training=True)
            scaled = self._model.optimizer.scale_loss(share)
        self._settle(before, rows, global_rows)
        variables = self._model.trainable_variables
        gradients, share, votes = self._exchanged(
            tape.gradient(scaled, variables), share, votes, rows, global_rows
        )
        self._model.optimizer.apply(gradients, variables)
        self._count_loss(share, global_rows)
        self._count_metrics(rows, x, y, predicted, weights)
        return tf.concat([[tf.cast(share, tf.float32)], votes], 0)

    def _share_of_loss(  # noqa: PLR0917 - named as Keras names them
        self,
        x: Any,
        y: Any,
        predicted: Any,
        weights: Any,
        rows: tf.Tensor,
        global_rows: tf.Tensor,
        *,
        training: bool,
    ) -> tf.Tensor:
        """Return this replica's share of the global batch's loss; see the head of this module."""
        loss = self._model._compute_loss(  # noqa: SLF001 - calls theirs as it was written
            x=x, y=y, y_pred=predicted, sample_weight=weights, training=training
        )
        regular = [v.regularizer(v) for v in self._model.trainable_variables if v.regularizer]
        regularisers = _total(regular, loss.dtype)
        summed = _total(_activity_losses(self._model), loss.dtype) if self._sums_activity else 0.0
        if self._reduction == _SUM:
            summed += loss - _total(self._model.losses, loss.dtype)
        here = tf.cast(rows > 0, loss.dtype)
        part = tf.cast(rows, loss.dtype) / tf.cast(global_rows, loss.dtype)
        return (loss - summed - regularisers) * part + summed * here + regularisers / self._replicas

    def _exchanged(
        self,
        gradients: list[Any],
        share: tf.Tensor,
        votes: tf.Tensor,
        rows: tf.Tensor,
        global_rows: tf.Tensor,
    ) -> tuple[list[Any], tf.Tensor, tf.Tensor]:
        """Sum gradients, loss and votes over the replicas, in one exchange with the averages."""
        # Dense: what an embedding's rows get from several places is summed before it is clipped.
        present = [tf.convert_to_tensor(g) for g in gradients if g is not None]
        if not present:
            raise ModelError("no weight of the model has a gradient: see its layers and its loss")
        if self._replicas > 1:
            wire = tf.float64 if share.dtype == tf.float64 else tf.float32
            numbers = tf.concat([[tf.cast(share, wire)], tf.cast(votes, wire)], 0)
            averages = [v.value * tf.cast(rows, v.dtype) for v in self._averages]
            numbers, *summed = _sum_over_replicas([numbers, *averages, *present])
            for variable, average in zip(self._averages, summed, strict=False):
                variable.assign(average / tf.cast(global_rows, average.dtype))
            present = summed[len(averages) :]
            share, votes = tf.cast(numbers[0], share.dtype), tf.cast(numbers[1:], tf.float32)
        rest = iter(present)
        return [None if g is None else next(rest) for g in gradients], share, votes

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

    def _values_before(self) -> list[tuple[Any, tf.Tensor]]:
        """Return what a forward pass and its loss change, and the values before it."""
        changed = [*_statistics(self._model), *self.metric_variables]
        if not self._may_lack_rows:
            changed = self._counted_by_step
        return [(variable, tf.identity(variable.value)) for variable in changed]

    def _settle(
        self, before: list[tuple[Any, tf.Tensor]], rows: tf.Tensor, global_rows: tf.Tensor
    ) -> None:
        """Let this replica's rows count for their share of the batch, for nothing without any."""
        for variable, value in before:
            if any(variable is each for each in self._counted_by_step):
                part = tf.cast(rows, variable.dtype) / tf.cast(global_rows, variable.dtype)
                variable.assign(value + (variable.value - value) * part)
            else:
                variable.assign(tf.where(rows > 0, variable.value, value))

    def _evaluate(self, batches: Any, steps: tf.Tensor) -> None:
        for _ in tf.range(steps):
            self._strategy.run(self._evaluate_replica, args=(next(batches),))

    @tf.autograph.experimental.do_not_convert
    def _evaluate_replica(self, batch: Any) -> None:
        data, rows, global_rows = batch
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        before = self._values_before()
        predicted = self._model(x, training=False)
        share = self._share_of_loss(x, y, predicted, weights, rows, global_rows, training=False)
        self._settle(before, rows, global_rows)
        if self._loss_tracker is not None:
            # Over all replicas this counts the global loss once for each global row.
            weight = tf.cast(global_rows, share.dtype) / self._replicas
            self._loss_tracker.update_state(share * self._replicas, sample_weight=weight)
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
        return _sum_over_replicas(values)

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


def _total(losses: list[Any], dtype: tf.DType) -> Any:
    return tf.cast(tf.add_n(losses), dtype) if losses else 0.0


def _sums_activity() -> bool:
    """Return whether activity regularisers sum over the rows, as in Keras 3.12 and before."""
    layer = keras.layers.Identity(activity_regularizer="l2")
    layer(tf.ones((1, 1)))
    (of_one,) = layer.losses
    layer(tf.ones((2, 1)))
    (of_two,) = layer.losses
    return bool(of_two > of_one)


def _activity_losses(model: keras.Model) -> list[Any]:
    layers = model._flatten_layers()  # noqa: SLF001 - nested ones too
    layers = [layer for layer in layers if getattr(layer, "activity_regularizer", None)]
    return [loss for layer in layers for loss in layer._losses]  # noqa: SLF001


def _sum_over_replicas(values: list[tf.Tensor]) -> list[tf.Tensor]:
    """Return sums, in one exchange for each type of number."""
    context = tf.distribute.get_replica_context()
    by_type: dict[tf.DType, list[int]] = {}
    for number, value in enumerate(values):
        by_type.setdefault(value.dtype, []).append(number)
    sums = list(values)
    for numbers in by_type.values():
        found = context.all_reduce(tf.distribute.ReduceOp.SUM, [values[n] for n in numbers])
        for number, value in zip(numbers, found, strict=True):
            sums[number] = value
    return sums


def _averages(model: keras.Model) -> list[Any]:
    """Return the weights in which batch normalisation averages over what it has seen."""
    layers = model._flatten_layers(include_self=False)  # noqa: SLF001 - nested ones too
    found = [
        layer
        for layer in layers
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable
    ]
    return [variable for layer in found for variable in layer.non_trainable_variables]


def _statistics(model: keras.Model) -> list[Any]:
    """Return the weights that a forward pass may change; those that were frozen are not."""
    layers = [layer for layer in model._flatten_layers() if layer.trainable]  # noqa: SLF001
    return [v for layer in layers for v in layer._non_trainable_variables]  # noqa: SLF001


def _counted_by_step(model: keras.Model, reduction: str) -> list[Any]:
    """Return where Keras follows the losses of several outputs, one count a step and replica.

    Totals of losses that are summed over the rows are right as they are.
    """
    metrics = model._compile_loss.metrics if model._compile_loss else []  # noqa: SLF001
    first = 1 if reduction == _SUM else 0
    return [variable for metric in metrics for variable in metric.variables[first:]]


def _check_can_train(model: keras.Model, replicas: int) -> None:
    """Refuse what this trainer would train otherwise than ``fit``."""
    for method in ("train_step", "test_step"):
        if getattr(type(model), method) is not getattr(keras.Model, method):
            raise ModelError(
                f"{type(model).__name__}.{method}() of trainer/model.py would not be called, as "
                f"the steps are this trainer's own: say the same in compute_loss() or add_loss()"
            )
    optimizer = model.optimizer
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if replicas > 1 and getattr(optimizer, "gradient_accumulation_steps", None):
        raise ModelError(
            "the optimizer's gradient_accumulation_steps are not supported on several replicas: "
            "leave them out and use a larger --global-batch-size"
        )
    if replicas > 1 and getattr(optimizer, "ema_overwrite_frequency", None):
        raise ModelError(
            "the optimizer's ema_overwrite_frequency is not supported on several replicas: leave "
            "it out; the averages become the model's weights at the end"
        )


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


def _leave_scaling_to_us() -> None:
    """Keep Keras from dividing some losses by the number of replicas, and others not.

    It does so where a loss is a mean that Keras has taken itself (``keras.losses.loss``).
    """
    from keras.src.losses import loss

    for name in ("scale_loss_for_distribution", "unscale_loss_for_distribution"):
        if not hasattr(loss, name):
            raise ModelError(
                f"Keras {keras.__version__} is not supported: use the one that "
                f"requirements.txt names"
            )
        setattr(loss, name, lambda value: value)
