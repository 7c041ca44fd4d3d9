"""Learning rates by options: scaled by the replicas, warm-up and decay, the same after a resume.

They become a Keras schedule, which computes the rate from the optimizer's step, so nothing but that
step is needed to resume. Wherever Keras has a schedule of the same values it is that one, so that
saved models load without this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer.errors import ModelError, PlanError
from distlaunch_trainer.keras_compat import keras_optimizers
from distlaunch_trainer.options import Settings
from distlaunch_trainer.training_state import RunOptions

from .model_state import find_optimizers
from .user_model import set_learning_rate
from .variable_names import unique_names

_schedules = keras.optimizers.schedules
_NAMES = ("warmup_epochs", "decay", "decay_rate", "decay_epochs")
_RATES = {"cosine": 0.0, "exponential": 0.1, "step": 0.1}
_SETTERS = (keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau)


@dataclass(frozen=True)
class RateOptions:
    """The options of the learning rate, as a checkpoint keeps them."""

    # With --scale-learning-rate the number of replicas when the run was started, else 0.
    scale: int = 0
    # The values of these options, None for the default.
    warmup_epochs: float | None = None
    decay: str | None = None
    decay_rate: float | None = None
    decay_epochs: float | None = None

    @property
    def factor(self) -> int:
        """By which rates are multiplied."""
        return max(1, self.scale)

    @property
    def has_schedule(self) -> bool:
        """Whether the rate depends on the step."""
        return bool(self.warmup_epochs or self.decay)

    @property
    def is_set(self) -> bool:
        """Whether any option is set."""
        return self != RateOptions()

    def as_saved(self) -> dict[str, Any] | None:
        """Return what a checkpoint keeps, None if no option is set."""
        return asdict(self) if self.is_set else None


def resolve_rate_options(
    settings: Settings, saved: RunOptions | None, replicas: int
) -> RateOptions:
    """Return the options of a run; one that is resumed keeps what it was started with.

    `saved` are the options of the run that is resumed, if there is one.
    """
    scales = settings.scale_learning_rate
    given = {name: getattr(settings, name) for name in _NAMES}
    if saved is not None:
        options = RateOptions(**(saved.rate_options or {}))
        for name, value in given.items():
            before = getattr(options, name)
            if value is not None and value != before:
                option = f"--{name.replace('_', '-')}"
                started = f"without {option}" if before is None else f"with {option} {before}"
                raise PlanError(
                    f"this job was started {started} and cannot continue with {value}: leave it "
                    "out, or use --no-resume to start from scratch"
                )
        if scales and not options.scale:
            raise PlanError(
                "this job was started without --scale-learning-rate: leave it out, or use "
                "--no-resume to start from scratch"
            )
        return options
    for name in ("decay_rate", "decay_epochs"):
        if given[name] is not None and given["decay"] is None:
            raise PlanError(
                f"--{name.replace('_', '-')} needs --decay cosine, --decay step or "
                "--decay exponential"
            )
    return RateOptions(replicas if scales else 0, **given)


def build_schedule(
    base: float, options: RateOptions, *, epochs: int, steps_per_epoch: int
) -> _schedules.LearningRateSchedule:
    """Return the schedule of options; steps are counted from the start of the run.

    ``base`` is the rate after the warm-up and before the decay.
    """
    warmup = _steps(options.warmup_epochs or 0.0, steps_per_epoch)
    kind = options.decay
    if kind is None:
        return _cosine(base, warmup, warmup, 1.0)
    decay_epochs = options.decay_epochs or (epochs / 3 if kind == "step" else float(epochs))
    decay = max(1, _steps(decay_epochs, steps_per_epoch))
    rate = _RATES[kind] if options.decay_rate is None else options.decay_rate
    if warmup and warmup >= decay:
        raise PlanError(
            f"--warmup-epochs {options.warmup_epochs:g} has to be less than the {decay_epochs:g} "
            "epochs of the decay (--decay-epochs)"
        )
    if kind == "cosine":
        return _cosine(base, warmup, decay, rate)
    after = _schedules.ExponentialDecay(base, decay, rate, staircase=kind == "step")
    return WarmUp(after, warmup) if warmup > 1 else after


def _steps(epochs: float, steps_per_epoch: int) -> int:
    return max(1, round(epochs * steps_per_epoch)) if epochs else 0


def _cosine(base: float, warmup: int, end: int, rest: float) -> _schedules.CosineDecay:
    """Return a warm-up by equal steps to ``base``, then a cosine to ``rest`` of it at ``end``."""
    if warmup < 2:
        return _schedules.CosineDecay(base, max(1, end), rest)
    first = base / warmup  # the first step trains too
    decay_steps = max(1, end - warmup + 1)
    return _schedules.CosineDecay(
        first, decay_steps, rest, warmup_target=base, warmup_steps=warmup - 1
    )


@keras.saving.register_keras_serializable("distlaunch_trainer")
class WarmUp(_schedules.LearningRateSchedule):
    """Multiplies a schedule by 1/n, 2/n … 1 in the first n steps."""

    def __init__(self, schedule: _schedules.LearningRateSchedule, steps: int) -> None:
        super().__init__()
        self.schedule = schedule
        self.steps = steps

    def __call__(self, step: Any) -> tf.Tensor:
        """Return the rate of a step, from 0."""
        rate = self.schedule(step)
        done = tf.cast(step, rate.dtype) + 1
        return rate * tf.minimum(done / self.steps, 1)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {"schedule": _schedules.serialize(self.schedule), "steps": self.steps}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> WarmUp:
        """Return the schedule with these arguments."""
        return cls(_schedules.deserialize(config["schedule"]), config["steps"])


def set_rates(
    model: keras.Model,
    options: RateOptions,
    run_options: RunOptions,
    epochs: int,
    log: Callable[[str], None],
) -> dict[str, Any] | None:
    """Scale the rate of each optimizer of a model, or give it a schedule on its own rate.

    ``run_options.learning_rate`` replaces the rate of ``model.optimizer``, if it is set. The
    schedules are returned by the optimizer's name, for a checkpoint; None if there are none.
    """
    serialized = {}
    for name, optimizer in find_optimizers(model).items():
        if len(keras_optimizers.parts(optimizer)) > 1:
            if run_options.learning_rate:
                set_learning_rate(model, run_options.learning_rate)  # which refuses it
            continue
        base = _constant_rate(name, optimizer)
        if optimizer is model.optimizer and run_options.learning_rate:
            base = run_options.learning_rate
        log(_describe(name, base, options))
        base *= options.factor
        rate: float | _schedules.LearningRateSchedule = base
        if options.has_schedule:
            rate = build_schedule(
                base, options, epochs=epochs, steps_per_epoch=run_options.steps_per_epoch
            )
            serialized[name] = _schedules.serialize(rate)
        keras_optimizers.set_learning_rate(optimizer, rate)
    return serialized or None


def restore_schedules(model: keras.Model, serialized: Mapping[str, Any] | None) -> None:
    """Give the optimizers of a model the schedules of a checkpoint."""
    optimizers = find_optimizers(model)
    for name, config in (serialized or {}).items():
        if name in optimizers:
            keras_optimizers.set_learning_rate(optimizers[name], _schedules.deserialize(config))


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


def _constant_rate(name: str, optimizer: keras.optimizers.Optimizer) -> float:
    """Return the learning rate of an optimizer that has no schedule."""
    variable = keras_optimizers.learning_rate_of(optimizer)
    if not isinstance(variable, keras.Variable):
        raise ModelError(
            f"create_model() in trainer/model.py gives {name} a learning-rate schedule already: "
            "remove it there, or leave --warmup-epochs, --decay and --scale-learning-rate out"
        )
    return float(tf.convert_to_tensor(variable.value))


def check_callbacks(callbacks: list[keras.callbacks.Callback]) -> None:
    """Refuse callbacks that set the learning rate, beside a schedule."""
    for callback in callbacks:
        if isinstance(callback, _SETTERS):
            raise ModelError(
                f"{type(callback).__name__} sets the learning rate, and --warmup-epochs or --decay "
                "does too: remove one of them"
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


def _describe(name: str, base: float, options: RateOptions) -> str:
    """Return a line about the learning rate of an optimizer."""
    parts = [f"{base:g}"]
    if options.scale:
        parts = [f"{base:g} x {options.scale} replicas = {base * options.scale:g}"]
    if options.warmup_epochs:
        plural = "" if options.warmup_epochs == 1 else "s"
        parts.append(f"warm-up over {options.warmup_epochs:g} epoch{plural}")
    if options.decay:
        parts.append(f"{options.decay} decay")
    return f"learning rate of {name}: {', '.join(parts)}"


@contextmanager
def portable_schedules(model: keras.Model) -> Iterator[None]:
    """Replace schedules that Keras does not have by those after the warm-up, to save the model."""
    replaced = []
    for optimizer in find_optimizers(model).values():
        schedule = keras_optimizers.learning_rate_of(optimizer)
        if isinstance(schedule, WarmUp):
            optimizer.learning_rate = schedule.schedule
            replaced.append((optimizer, schedule))
    try:
        yield
    finally:
        for optimizer, schedule in replaced:
            optimizer.learning_rate = schedule
