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
from distlaunch_trainer.step.custom_steps import (
    other_names,
    overrides,
    recorded_results,
    replaced_updates,
)
from distlaunch_trainer.step.losses import normalize_globally
from distlaunch_trainer.step.replica_metrics import note_of_numbers
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
        changed.enter_context(_zero_gradients())

        def step(data: Any) -> None:
            rows = count_rows(data)
            with (
                normalize_globally(StepRows(rows, rows, 1, False)),
                recorded_results(model) as results,
            ):
                logs = model.train_step(data) if trains else model.test_step(data)
            if trains and overrides(model, "train_step") and isinstance(logs, dict):
                notes.extend(_notes(model, logs, results))

        with keras_compat.variable_creation():
            tf.function(step, autograph=False).get_concrete_function(batch_spec)
    for optimizer, variables in applications:
        optimizer.build(variables)
    model.built = True  # also without call(), which Keras would set it in
    return notes


def _notes(model: keras.Model, logs: Any, results: list[tuple[Any, str]]) -> Iterator[str]:
    """Return what of the logs of a model's own step depends on the number of replicas."""
    known = {*model.get_metrics_result(), *other_names(logs, results)}
    if unknown := [name for name in logs if name not in known]:
        yield note_of_numbers(model, "train_step", unknown)


@contextmanager
def _recorded_applications() -> Iterator[list[tuple[Any, list[Any]]]]:
    """Record the variables that each optimizer is called for first, and update none."""
    applications: list[tuple[Any, list[Any]]] = []

    def update(optimizer: Any, _: Any, __: Any, variables: list[Any] | None) -> None:
        is_known = any(optimizer is other for other, _ in applications)
        if variables is not None and not is_known and not optimizer.built:
            applications.append((optimizer, variables))

    with replaced_updates(update):
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
