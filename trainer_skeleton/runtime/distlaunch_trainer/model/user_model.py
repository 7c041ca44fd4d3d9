"""The model and the callbacks that a user's functions return, checked before training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.task.explain import from_user


def create_compiled_model(create_model: Callable[[], keras.Model]) -> keras.Model:
    """Return the compiled model that a user's function returns."""
    model = from_user("create_model()", create_model)
    if not isinstance(model, keras.Model):
        raise ModelError(
            f"create_model() in trainer/model.py returned {type(model).__name__}: end it with "
            "return model, a compiled keras.Model"
        )
    if getattr(model, "optimizer", None) is None:
        raise ModelError(
            "the model that create_model() in trainer/model.py returns is not compiled: "
            "end it with model.compile(optimizer=..., loss=...)"
        )
    return model


def silence_summary(library: Any) -> None:
    """Let ``model.summary()`` of Keras or tf_keras print nothing: the chief prints it for all."""
    summary = library.Model.summary

    def silent(model: Any, *args: Any, print_fn: Any = None, **options: Any) -> None:
        if print_fn is not None:
            summary(model, *args, print_fn=print_fn, **options)

    library.Model.summary = silent


def checked_callbacks(callbacks: Any) -> list[keras.callbacks.Callback]:
    """Return what ``callbacks()`` returned, if it is a list of Keras callbacks."""
    is_list = isinstance(callbacks, (list, tuple))
    if not is_list or not all(isinstance(each, keras.callbacks.Callback) for each in callbacks):
        raise ModelError(f"callbacks have to be a list of Keras callbacks, got {callbacks!r}")
    return list(callbacks)


def set_learning_rate(model: keras.Model, rate: float | None) -> None:
    """Set the learning rate of an optimizer that has one, and no schedule."""
    try:
        model.optimizer.learning_rate = rate
    except (AttributeError, TypeError, ValueError):
        raise ModelError(
            f"--learning-rate cannot replace the schedule, or the rates of several optimizers, "
            f"that create_model() in trainer/model.py gives {type(model.optimizer).__name__}: "
            f"change them there"
        ) from None
