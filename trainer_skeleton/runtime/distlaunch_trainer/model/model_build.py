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
from distlaunch_trainer.input.batch_rows import count_rows
from distlaunch_trainer.keras_compat import keras_optimizers
from distlaunch_trainer.step.custom_steps import (
    other_names,
    overrides,
    recorded_results,
)
from distlaunch_trainer.step.losses import normalize_globally
from distlaunch_trainer.step.row_sums import sums_rows
from distlaunch_trainer.step.step_context import StepRows

_VARIABLES = (keras.Variable, tf.Variable)


def build_model(model: keras.Model, batch_spec: Any, *, trains: bool = True) -> list[str]:
    """Create all variables of a compiled model; to be called in the strategy's scope.

    `batch_spec` is a structure of ``tf.TensorSpec``, as ``train_step()`` gets it, or
    ``test_step()`` if the model is not trained. Warnings are returned about the model's own
    ``train_step()``: what depends on the number of replicas.
    """
    notes: list[str] = []
    with ExitStack() as changed:
        applications = changed.enter_context(_recorded_applications())
        targets = changed.enter_context(_zero_gradients())

        def step(data: Any) -> None:
            rows = count_rows(data)
            with (
                normalize_globally(StepRows(rows, rows, 1, False)),
                recorded_results(model) as results,
            ):
                logs = model.train_step(data) if trains else model.test_step(data)
            if trains and overrides(model, "train_step"):
                unknown = [] if not isinstance(logs, dict) else _unknown(model, logs, results)
                notes.extend(_notes(model, unknown, targets))

        with keras_compat.variable_creation():
            tf.function(step, autograph=False).get_concrete_function(batch_spec)
    for optimizer, variables in applications:
        optimizer.build(variables)
    model.built = True  # also without call(), which Keras would set it in
    return notes


def _notes(model: keras.Model, unknown: list[str], targets: list[tf.Tensor]) -> Iterator[str]:
    """Return what of a model's own step depends on the number of replicas.

    `unknown` are the names in its logs that are of no metric.
    """
    step = f"{type(model).__name__}.train_step()"
    if any(map(sums_rows, targets)):
        yield (
            f"{step} differentiates a sum over the rows of a batch, and each replica's gradients "
            f"are averaged: the weights depend on the number of replicas; use a mean over the rows"
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

    kinds = keras_optimizers.classes_with_apply()
    originals = [kind.apply for kind in kinds]
    for kind in kinds:
        kind.apply = apply
    try:
        yield applications
    finally:
        for kind, original in zip(kinds, originals, strict=True):
            kind.apply = original


@contextmanager
def _zero_gradients() -> Iterator[list[tf.Tensor]]:
    """Let tapes return zeros, and record the losses that weights are differentiated by.

    A variable that was just created has no handle to differentiate.
    """
    targets: list[tf.Tensor] = []

    def gradient(_: Any, target: Any, sources: Any, *__: Any, **___: Any) -> Any:
        if any(isinstance(source, _VARIABLES) for source in tf.nest.flatten(sources)):
            targets.extend(tf.nest.flatten(target))
        return tf.nest.map_structure(_zeros, sources)

    original = tf.GradientTape.gradient
    tf.GradientTape.gradient = gradient
    try:
        yield targets
    finally:
        tf.GradientTape.gradient = original


def _zeros(source: Any) -> tf.Tensor:
    if isinstance(source, _VARIABLES):
        return tf.zeros(source.shape, source.dtype)
    return tf.zeros_like(source)
