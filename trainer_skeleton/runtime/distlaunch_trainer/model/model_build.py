"""Building a model: its variables, and those of its losses, metrics and optimizers.

Under ``fit`` they are created while the first training step is traced. On several replicas all
variables must exist before, so the training step is traced once without being run: Keras creates
variables and updates none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer import keras_compat
from distlaunch_trainer.keras_compat.keras_optimizers import replaced_updates
from distlaunch_trainer.step.custom_steps import (
    other_names,
    overrides,
    recorded_results,
    weights_scalars,
)
from distlaunch_trainer.step.losses import normalize_globally
from distlaunch_trainer.step.step_context import StepRows

_VARIABLES = (keras.Variable, tf.Variable)


def build_model(model: keras.Model, batch_spec: Any) -> list[str]:
    """Create all variables of a compiled model; to be called in the strategy's scope.

    `batch_spec` is a structure of ``tf.TensorSpec``, as ``train_step()`` gets it. Warnings are
    returned about the model's own ``train_step()``: what depends on the number of replicas.
    """
    notes: list[str] = []
    with ExitStack() as changed:
        applications = changed.enter_context(_recorded_applications())
        changed.enter_context(_zero_gradients())
        scalars = changed.enter_context(_recorded_scalars(model))

        def step(data: Any) -> None:
            rows = tf.shape(tf.nest.flatten(data)[0], tf.int64)[0]
            with (
                normalize_globally(StepRows(rows, rows, 1, False)),
                recorded_results(model) as results,
            ):
                logs = model.train_step(data)
            if overrides(model, "train_step"):
                unknown = [] if not isinstance(logs, dict) else _unknown(model, logs, results)
                notes.extend(_notes(model, unknown, scalars))

        with keras_compat.variable_creation():
            tf.function(step, autograph=False).get_concrete_function(batch_spec)
    for optimizer, variables in applications:
        optimizer.build(variables)
    return notes


def _notes(model: keras.Model, unknown: list[str], scalars: list[str]) -> Iterator[str]:
    """Return what of a model's own step depends on the number of replicas.

    `unknown` are the names in its logs that are of no metric.
    """
    step = f"{type(model).__name__}.train_step()"
    if scalars:
        yield (
            f"{step} updates the metrics {', '.join(scalars)} once per step without sample_weight: "
            f"they count once per replica"
        )
    if unknown:
        yield (
            f"{step} returns {', '.join(unknown)}, which no metric has: the logs have the last "
            f"step's mean over the replicas, weighted by their rows"
        )


def _unknown(model: keras.Model, logs: dict[str, Any], results: list[tuple[Any, str]]) -> list[str]:
    known = {*model.get_metrics_result(), *other_names(logs, results)}
    return [name for name in logs if name not in known]


@contextmanager
def _recorded_applications() -> Iterator[list[tuple[Any, list[Any]]]]:
    """Record the variables that each optimizer is called for first, and update none."""
    applications: list[tuple[Any, list[Any]]] = []

    def apply(optimizer: Any, _: Any, trainable_variables: Any = None) -> None:
        is_known = any(optimizer is other for other, _ in applications)
        if trainable_variables is not None and not is_known and not optimizer.built:
            applications.append((optimizer, list(trainable_variables)))

    with replaced_updates(apply):
        yield applications


@contextmanager
def _zero_gradients() -> Iterator[None]:
    """Let tapes return zeros: a variable that was just created has no handle to differentiate."""

    def gradient(_: Any, __: Any, sources: Any, *___: Any, **____: Any) -> Any:
        return tf.nest.map_structure(_zeros, sources)

    original = tf.GradientTape.gradient
    tf.GradientTape.gradient = gradient
    try:
        yield
    finally:
        tf.GradientTape.gradient = original


def _zeros(source: Any) -> tf.Tensor:
    if isinstance(source, _VARIABLES):
        return tf.zeros(source.shape, source.dtype)
    return tf.zeros_like(source)


@contextmanager
def _recorded_scalars(model: keras.Model) -> Iterator[list[str]]:
    """Record the metrics that are given one number per step and cannot weight it."""
    names: list[str] = []

    def recorder(metric: Any, update: Any) -> Any:
        def update_state(*args: Any, **kwargs: Any) -> Any:
            values = tf.nest.flatten([args, kwargs])
            if not any(keras.ops.ndim(value) for value in values if value is not None):
                names.append(metric.name)
            return update(*args, **kwargs)

        return update_state

    metrics = [metric for metric in model.metrics if not weights_scalars(metric)]
    for metric in metrics:
        metric.update_state = recorder(metric, metric.update_state)
    try:
        yield names
    finally:
        for metric in metrics:
            del metric.update_state
