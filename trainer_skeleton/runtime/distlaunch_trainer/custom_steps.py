"""A model's own ``train_step()`` and ``test_step()``, and a user's, on several replicas as on one.

A model's step computes means over the rows of its batch, differentiates them and calls its
optimizers. Each optimizer is given the gradients of the global batch: those of each replica,
weighted by its fraction of the rows and all-reduced. So clipping and moments are those of one
worker, and all replicas have the same weights. Metrics that are given one number per step are
weighted likewise.

A user's function ``train_step(model, data, global_batch_size)`` is one as of TensorFlow's custom
training loops: its loss is this replica's share of that of the global batch, so gradients are
summed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import keras
import tensorflow as tf

from . import keras_compat
from .all_reduce import gathers_rows, sum_gradients, with_static_shape
from .errors import ModelError
from .losses import StepRows, current_rows, normalize_globally
from .normalization import BatchNormalizations

TrainStep = Callable[[keras.Model, Any, tf.Tensor], tf.Tensor]
"""``(model, data, global_batch_size)`` to a replica's share of the loss of the global batch."""

_SCALAR_METRICS = (keras.metrics.Mean.update_state, keras.metrics.Sum.update_state)


def overrides(model: keras.Model, method: str) -> bool:
    """Return whether a model's class has its own version of a method of ``keras.Model``."""
    return getattr(type(model), method) is not getattr(keras.Model, method)


def check_can_train(model: keras.Model, replicas: int) -> None:
    """Refuse a model that cannot be trained on these replicas.

    Raises
    ------
    ModelError
        If it replaces the loop around its steps, or has stateful layers on several replicas.
    """
    rnn = keras.layers.RNN
    layers = [layer for layer in keras_compat.all_layers(model) if isinstance(layer, rnn)]
    stateful = [layer.name for layer in layers if layer.stateful]
    if stateful and replicas > 1:
        raise ModelError(
            f"the layers {', '.join(stateful)} are stateful, and {replicas} replicas would each "
            f"keep the state of other rows: train on one worker, or with stateful=False"
        )
    for method in ("make_train_function", "make_test_function"):
        if overrides(model, method):
            raise ModelError(
                f"{type(model).__name__}.{method}() of trainer/model.py would not be called: "
                f"override train_step() or test_step() instead"
            )


def weights_scalars(metric: keras.metrics.Metric) -> bool:
    """Return whether a metric takes numbers with weights."""
    return type(metric).update_state in _SCALAR_METRICS


class CustomSteps:
    """Calls a model's own steps.

    Parameters
    ----------
    model
        A compiled model, built in the strategy's scope.
    normalizations
        Its batch normalizations.
    replicas
        Number of replicas.
    function
        The user's, in place of the model's ``train_step()``.

    Attributes
    ----------
    has_train_step, has_test_step
        Whether the model's class has its own; not if there is a function in its place.
    gathers_rows
        Whether the replicas exchange rows of sparse gradients; known after the first step.
    """

    def __init__(
        self,
        model: keras.Model,
        normalizations: BatchNormalizations,
        replicas: int,
        function: TrainStep | None = None,
    ) -> None:
        check_can_train(model, replicas)
        self._model = model
        self._normalizations = normalizations
        self.gathers_rows = False
        self.function = function
        self.has_train_step = overrides(model, "train_step") and function is None
        self.has_test_step = overrides(model, "test_step")
        self._replicas = replicas
        if replicas > 1 and (self.has_train_step or function):
            _reduce_in_steps()
        if replicas > 1 and (self.has_train_step or self.has_test_step):
            weight_scalars(model.metrics)

    def call_function(self, data: Any, rows: StepRows) -> tf.Tensor:
        """Train one replica's step by the user's function; return its share of the loss."""
        assert self.function is not None
        # The placeholder of a replica without rows counts for nothing, and regularizers as on all.
        size = tf.where(rows.local_rows > 0, rows.global_rows, tf.int64.max)
        reduced = self._reducing(_as_it_is)
        with self._normalizations.in_replica(rows.local_rows), reduced:
            loss = self.function(self._model, data, size)
        if not tf.is_tensor(loss) or loss.shape.rank != 0:
            got = f"shape {loss.shape}" if tf.is_tensor(loss) else type(loss).__name__
            raise ModelError(
                f"train_step() in trainer/model.py returned {got}: return the loss, a scalar tensor"
            )
        return loss

    def train(self, data: Any, rows: StepRows) -> dict[str, Any]:
        """Train one replica's step; return what ``train_step()`` returned."""
        synchronized = self._normalizations.in_replica(rows.local_rows, rows.local_fraction)
        with normalize_globally(rows), synchronized, self._reducing(rows.weigh):
            return _checked_logs(self._model, "train_step", self._model.train_step(data))

    def test(self, data: Any, rows: StepRows) -> dict[str, Any]:
        """Evaluate one replica's step; return what ``test_step()`` returned."""
        with normalize_globally(rows):
            return _checked_logs(self._model, "test_step", self._model.test_step(data))

    @contextmanager
    def _reducing(self, weigh: Callable[[Any], Any]) -> Iterator[None]:
        """Have optimizers all-reduce the gradients of a replica in here."""
        _reduction.weigh, _reduction.steps = weigh, self
        try:
            yield
        finally:
            _reduction.steps = None


_reduction = threading.local()  # a replica is traced in a thread of its own


def _reduce_in_steps() -> None:
    """Have all optimizers all-reduce the gradients of a model's own steps, then clip and apply."""
    for kind in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer):
        if not hasattr(kind.apply, "__wrapped__"):
            kind.apply = _reducing(kind.apply)


def _reducing(apply: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(apply)
    def reducing(optimizer: Any, grads: Iterable[Any], trainable_variables: Any = None) -> Any:
        steps: CustomSteps | None = getattr(_reduction, "steps", None)
        if steps is None:
            return apply(optimizer, grads, trainable_variables)
        keras_compat.disable_gradient_aggregation(optimizer)
        gradients = list(grads)
        variables = None if trainable_variables is None else list(trainable_variables)
        steps.gathers_rows |= any(map(gathers_rows, gradients))
        summed = sum_weighted(gradients, variables, _reduction.weigh)
        _reduction.steps = None  # LossScaleOptimizer applies the gradients by another optimizer
        try:
            return apply(optimizer, summed, variables)
        finally:
            _reduction.steps = steps

    return reducing


def _as_it_is(gradient: Any) -> Any:
    return gradient


def sum_weighted(
    gradients: Sequence[Any], variables: Sequence[Any] | None, weigh: Callable[[Any], Any]
) -> list[Any]:
    """Return the gradients of the global batch; None where a replica has none.

    Parameters
    ----------
    gradients
        The gradients of a replica, those of embeddings as rows.
    variables
        Their variables, None if these are not known.
    weigh
        Is given a gradient, and returns what it adds to that of the global batch.
    """
    unknown = [tf.TensorShape(None)] * len(gradients)
    shapes = unknown if variables is None else [v.shape for v in variables]
    present = [
        weigh(with_static_shape(gradient, shape))
        for gradient, shape in zip(gradients, shapes, strict=True)
        if gradient is not None
    ]
    summed = iter(sum_gradients(present))
    return [None if gradient is None else next(summed) for gradient in gradients]


def weight_scalars(metrics: Iterable[keras.metrics.Metric]) -> None:
    """Weight the numbers per step that metrics are given by the rows of a replica."""
    for metric in metrics:
        if weights_scalars(metric) and "update_state" not in vars(metric):
            metric.update_state = _weighted_update(metric, metric.update_state)


def _weighted_update(metric: Any, update: Callable[..., Any]) -> Callable[..., Any]:
    """Return a metric's ``update_state()`` that weights a number per step by the rows."""

    def weighted(values: Any, sample_weight: Any = None) -> Any:
        rows = current_rows()
        is_per_step = sample_weight is None and not keras.ops.ndim(values)
        if rows is not None and is_per_step:
            sample_weight = rows.local_fraction(metric.dtype)
        return update(values, sample_weight=sample_weight)

    return weighted


def _checked_logs(model: keras.Model, method: str, logs: Any) -> dict[str, Any]:
    if not isinstance(logs, dict):
        raise ModelError(
            f"{type(model).__name__}.{method}() in trainer/model.py returned "
            f"{type(logs).__name__}: return a dict of metrics"
        )
    return logs
