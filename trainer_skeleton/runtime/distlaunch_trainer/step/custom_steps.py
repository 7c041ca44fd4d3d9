"""A model's own ``train_step()`` and ``test_step()``, and a user's, on several replicas as on one.

A model's step computes means over the rows of its batch, differentiates them and calls its
optimizers. Each optimizer is given the gradients of the global batch: those of each replica,
weighted by its fraction of the rows and all-reduced. So clipping and moments are those of one
worker, and all replicas have the same weights.

A user's function ``train_step(model, data, global_batch_size)`` is one as of TensorFlow's custom
training loops: its loss is this replica's share of that of the global batch, so gradients are
summed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import count
from typing import Any, Literal
from weakref import WeakKeyDictionary

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.keras_compat import keras_optimizers

from . import step_context
from .all_reduce import sum_gradients, weigh, with_static_shape, without_placeholder
from .losses import normalize_globally
from .step_context import StepRows

TrainStep = Callable[[keras.Model, Any, tf.Tensor], tf.Tensor]
"""``(model, data, global_batch_size)`` to a replica's share of the loss of the global batch."""

Kind = Literal["mean", "sum"] | None
"""What numbers are of the rows of a batch: a mean over them, a sum, or neither."""

gradient_kinds: WeakKeyDictionary[keras.Model, list[Kind]] = WeakKeyDictionary()
"""What gradients a model's ``train_step()`` gives its optimizers, one call after the other."""


def overrides(model: keras.Model, method: str) -> bool:
    """Return whether a model's class has its own version of a method of ``keras.Model``."""
    return getattr(type(model), method) is not getattr(keras.Model, method)


def check_can_train(model: keras.Model, replicas: int) -> None:
    """Refuse a model with a loop of its own, or with stateful layers on several replicas."""
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
                f"{type(model).__name__}.{method}() would not be called: "
                f"override train_step() or test_step() instead"
            )


class CustomSteps:
    """Calls a model's own steps."""

    def __init__(
        self,
        model: keras.Model,
        replicas: int,
        function: TrainStep | None = None,
    ) -> None:
        check_can_train(model, replicas)
        self._model = model
        # Of the step that was traced last: names in its logs, with those of the metrics whose
        # results they are.
        self.metric_names: dict[str, str] = {}
        self.function = function
        self.has_train_step = overrides(model, "train_step") and function is None  # in its place
        self.has_test_step = overrides(model, "test_step")

    def call_function(self, data: Any, rows: StepRows) -> tf.Tensor:
        """Train one replica's step by the user's function; return its share of the loss."""
        assert self.function is not None
        # The placeholder of a replica without rows counts for nothing, and regularizers as on all.
        size = tf.where(rows.local_rows > 0, rows.global_rows, tf.int64.max)
        with self._reducing(rows, weighs=False):
            loss = self.function(self._model, data, size)
        if not tf.is_tensor(loss) or loss.shape.rank != 0:
            got = f"shape {loss.shape}" if tf.is_tensor(loss) else type(loss).__name__
            raise ModelError(
                f"train_step() in trainer/model.py returned {got}: return the loss, a scalar tensor"
            )
        return loss

    def train(self, data: Any, rows: StepRows) -> dict[str, Any]:
        """Train one replica's step; return what ``train_step()`` returned."""
        is_of_sums = set(gradient_kinds.get(self._model, [])) == {"sum"}
        with (
            normalize_globally(rows),
            self._reducing(rows, weighs=True),
            step_context.extended(weighs_gradients=not is_of_sums),
        ):
            return self._logs_of("train_step", data)

    def test(self, data: Any, rows: StepRows) -> dict[str, Any]:
        """Evaluate one replica's step; return what ``test_step()`` returned."""
        with normalize_globally(rows):
            return self._logs_of("test_step", data)

    def _logs_of(self, method: str, data: Any) -> dict[str, Any]:
        with recorded_results(self._model) as results:
            logs = getattr(self._model, method)(data)
        if not isinstance(logs, dict):
            raise ModelError(
                f"{type(self._model).__name__}.{method}() returned "
                f"{type(logs).__name__}: return a dict of metrics"
            )
        self.metric_names = other_names(logs, results)
        return logs

    def _reducing(self, rows: StepRows, *, weighs: bool) -> AbstractContextManager[None]:
        """Have optimizers all-reduce the gradients of a replica in here."""
        if rows.replicas == 1:
            return nullcontext()
        kinds, calls = gradient_kinds.get(self._model, []), count()

        def update(
            optimizer: Any, apply: Callable[..., Any], gradients: list[Any], variables: Any
        ) -> Any:
            keras_optimizers.disable_gradient_aggregation(optimizer)
            pairs = zip(gradients, variables or gradients, strict=True)
            shares = [g if g is None else with_static_shape(g, v.shape) for g, v in pairs]
            if weighs:
                is_sum = "sum" in kinds[(call := next(calls)) : call + 1]
                share_of = without_placeholder if is_sum else weigh
                shares = [g if g is None else share_of(g, rows) for g in shares]
            # LossScaleOptimizer applies the gradients by another optimizer.
            with step_context.extended(update=None):
                return apply(sum_gradients(shares), variables)

        return replaced_updates(update, weighs_gradients=weighs)


def replaced_updates(update: Callable[..., Any], **context: Any) -> AbstractContextManager[None]:
    """Have optimizers call a function in place of an update in here, see `intercept_updates`."""
    keras_optimizers.intercept_updates(lambda: step_context.current().update)
    return step_context.extended(update=update, **context)


@contextmanager
def recorded_results(model: keras.Model) -> Iterator[list[tuple[Any, str]]]:
    """Yield a list that gets the results of a model's metrics, with the metrics' names."""
    for metric in model.metrics:
        if "result" not in vars(metric):
            metric.result = partial(_recorded_result, metric, metric.result)
    results: list[tuple[Any, str]] = []
    with step_context.extended(metric_results=results):
        yield results


def other_names(logs: Mapping[str, Any], results: Iterable[tuple[Any, str]]) -> dict[str, str]:
    """Return the names in logs of what metrics of other names have returned, with the metrics'."""
    return {
        name: metric
        for name, value in logs.items()
        for result, metric in results
        if value is result and name != metric
    }


def _recorded_result(metric: Any, result: Callable[[], Any]) -> Any:
    value = result()
    if (results := step_context.current().metric_results) is not None:
        results.append((value, metric.name))
    return value
