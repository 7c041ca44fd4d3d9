"""Learning rates by options: scaled by the replicas and warmed up, the same after a resume.

A warm-up becomes a Keras schedule, which computes the rate from the optimizer's step, so nothing
but that step is needed to resume.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer.errors import ModelError, PlanError
from distlaunch_trainer.keras_compat import keras_optimizers
from distlaunch_trainer.training_state import RunOptions

from .model_state import find_optimizers
from .user_model import set_learning_rate
from .variable_names import unique_names

_schedules = keras.optimizers.schedules
_SETTERS = (keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau)


class ScaledSchedule(_schedules.LearningRateSchedule):
    """Multiplies a schedule by a factor, and by 1/n, 2/n … 1 in the first n steps.

    Keras saves it as the schedule that it multiplies, so a model, also one that ModelCheckpoint
    writes, loads without this package.
    """

    def __init__(
        self, schedule: _schedules.LearningRateSchedule, factor: int, warmup_steps: int
    ) -> None:
        self._schedule = schedule
        self._factor = factor
        self._warmup_steps = warmup_steps

    @property
    def __class__(self) -> type:
        """The class of the schedule, under which Keras saves the arguments."""
        return type(self._schedule)

    def __call__(self, step: Any) -> tf.Tensor:
        """Return the rate of a step, from 0."""
        rate = tf.convert_to_tensor(self._schedule(step)) * self._factor
        done = tf.cast(step, rate.dtype) + 1
        return rate * tf.minimum(done / self._warmup_steps, 1)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the schedule."""
        config: dict[str, Any] = self._schedule.get_config()
        return config


def set_rates(model: keras.Model, options: RunOptions, log: Callable[[str], None]) -> None:
    """Scale and warm up the rate of each optimizer of a model, if the options have it.

    ``options.learning_rate`` replaces the rate of ``model.optimizer``, if it is set.
    """
    if not options.rate_scale and not options.warmup_epochs:
        return
    if options.warmup_epochs and not options.steps_per_epoch:
        raise PlanError(
            "--warmup-epochs: how many steps an epoch has is unknown: set --steps-per-epoch"
        )
    if options.learning_rate:
        set_learning_rate(model, options.learning_rate)
    factor = max(1, options.rate_scale)
    steps = max(1, round(options.warmup_epochs * options.steps_per_epoch))
    for name, optimizer in find_optimizers(model).items():
        if len(keras_optimizers.parts(optimizer)) > 1:
            continue
        rate = keras_optimizers.learning_rate_of(optimizer)
        if isinstance(rate, keras.Variable):
            rate = float(tf.convert_to_tensor(rate.value))
            scaled = rate * factor
            if options.warmup_epochs:
                constant = _schedules.ExponentialDecay(scaled, decay_steps=1, decay_rate=1.0)
                scaled = ScaledSchedule(constant, 1, steps)
        elif isinstance(rate, _schedules.LearningRateSchedule):
            scaled = ScaledSchedule(rate, factor, steps)
        else:
            raise ModelError(
                f"the learning rate of {name} is neither a number nor a schedule of Keras: change "
                "it in trainer/model.py, or leave --warmup-epochs and --scale-learning-rate out"
            )
        log(_describe(name, rate, options))
        keras_optimizers.set_learning_rate(optimizer, scaled)


def constant_rates(model: keras.Model) -> dict[str, float]:
    """Return the learning rates that callbacks may set, by the optimizer's name."""
    rates = {
        n: keras_optimizers.learning_rate_of(each) for n, each in find_optimizers(model).items()
    }
    return {
        name: float(tf.convert_to_tensor(rate.value))
        for name, rate in rates.items()
        if isinstance(rate, keras.Variable)
    }


def restore_constant_rates(model: keras.Model, rates: Mapping[str, float]) -> None:
    """Set the learning rates that `constant_rates` returned."""
    for name, optimizer in find_optimizers(model).items():
        rate = keras_optimizers.learning_rate_of(optimizer)
        if name in rates and isinstance(rate, keras.Variable):
            rate.assign(rates[name])


def check_callbacks(callbacks: list[keras.callbacks.Callback]) -> None:
    """Refuse callbacks that set the learning rate, beside a warm-up."""
    for callback in callbacks:
        if isinstance(callback, _SETTERS):
            raise ModelError(
                f"{type(callback).__name__} sets the learning rate, and --warmup-epochs does too: "
                "remove one of them"
            )


def rates_of_last_step(model: keras.Model) -> dict[str, float]:
    """Return the learning rate of the step that ``model.optimizer`` applied last.

    Of an optimizer that wraps several, such as a MultiOptimizer, each one has a rate:
    ``learning_rate/adam``. Optimizers without a rate that can be read are left out.
    """
    optimizers = keras_optimizers.parts(model.optimizer)
    names = unique_names(f"learning_rate/{each.name}" for each in optimizers)
    names = names if len(names) > 1 else ["learning_rate"]
    rates = zip(names, map(_rate_of_last_step, optimizers), strict=True)
    return {name: rate for name, rate in rates if rate is not None}


def _rate_of_last_step(optimizer: keras.optimizers.Optimizer) -> float | None:
    rate = keras_optimizers.learning_rate_of(optimizer)
    if isinstance(rate, _schedules.LearningRateSchedule):
        steps = int(tf.convert_to_tensor(keras_optimizers.schedule_step(optimizer).value))
        return float(rate(max(0, steps - 1)))
    try:
        return float(tf.convert_to_tensor(optimizer.learning_rate))
    except (AttributeError, TypeError, ValueError):  # of a user's class
        return None


def _describe(name: str, rate: Any, options: RunOptions) -> str:
    """Return a line about the learning rate of an optimizer: a number or a schedule."""
    is_number = isinstance(rate, float)
    text = f"{rate:g}" if is_number else type(rate).__name__
    if options.rate_scale:
        text += f" x {options.rate_scale} replicas"
        text += f" = {rate * options.rate_scale:g}" if is_number else ""
    if options.warmup_epochs:
        plural = "" if options.warmup_epochs == 1 else "s"
        text += f", warm-up over {options.warmup_epochs:g} epoch{plural}"
    return f"learning rate of {name}: {text}"
