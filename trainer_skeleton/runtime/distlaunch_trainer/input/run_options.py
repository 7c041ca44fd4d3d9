"""The options of a run as its data decide them, the same when the run resumes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from distlaunch_trainer.errors import DataError, PlanError
from distlaunch_trainer.input.order.plan import DEFAULT_SHARDS
from distlaunch_trainer.options import Settings
from distlaunch_trainer.training_state import RunOptions, TrainingState

from .batches import Data

_Value = TypeVar("_Value", int, float, str)

_FROM_SCRATCH = "--no-resume or another --job-dir to start from scratch"

_DEFAULT_SHUFFLE = 10_000


def run_options(settings: Settings, replicas: int, saved: RunOptions | None) -> RunOptions:
    """Return the options of a run before its data are known: 0 for what is to be counted.

    ``saved`` are those of the run that is resumed, if there is one.
    """
    if saved and _are_of_the_data(saved):
        saved = replace(saved, steps_per_epoch=settings.steps_per_epoch or 0)
    names = {
        "seed": 0,
        "shards": DEFAULT_SHARDS,
        "shuffle": _DEFAULT_SHUFFLE,
        "steps_per_epoch": 0,
        "warmup_epochs": 0.0,
    }
    numbers: dict[str, Any] = {
        name: resolve_option(
            f"--{name.replace('_', '-')}",
            getattr(settings, name),
            saved and getattr(saved, name),
            default,
        )
        for name, default in names.items()
    }
    batch = settings.global_batch_size
    if settings.batch_size is not None:
        batch = settings.batch_size * replicas
    return RunOptions(
        examples=saved.examples if saved else 0,
        global_batch=resolve_option("--global-batch-size", batch, saved and saved.global_batch, 0),
        shard_policy=resolve_option(
            "--shard-policy", settings.shard_policy, saved and saved.shard_policy, "data"
        ),
        precision=settings.precision or "float32",
        learning_rate=saved.learning_rate if saved else None,
        rate_scale=_rate_scale(settings, replicas, saved),
        **numbers,
    )


def _rate_scale(settings: Settings, replicas: int, saved: RunOptions | None) -> int:
    """Return the replicas of the run's start with --scale-learning-rate, 0 without."""
    if saved is None:
        return replicas if settings.scale_learning_rate else 0
    if settings.scale_learning_rate and not saved.rate_scale:
        raise PlanError(
            f"this job was started without --scale-learning-rate: leave it out, or {_FROM_SCRATCH}"
        )
    return saved.rate_scale


def with_data(options: RunOptions, data: Data) -> RunOptions:
    """Return the options with what is known of the data."""
    plan = data.plan
    return replace(
        options,
        examples=plan.examples or 0,
        global_batch=plan.global_batch,
        batches=plan.steps or 0,
        steps_per_epoch=options.steps_per_epoch or plan.steps,
    )


def resume_on_data(
    options: RunOptions, start: TrainingState | None, warn: Callable[[str], None]
) -> RunOptions:
    """Return the options of a run, or of a call of ``fit``, whose data are known.

    A run that is resumed keeps its batch, its precision and the steps of an epoch, unless these are
    a pass over the data. Other data are refused within an epoch, and begin with the next.
    """
    if start is None:
        return options
    saved, progress = start.options, start.progress
    if saved.global_batch and options.global_batch:
        resolve_option("a global batch of", options.global_batch, saved.global_batch, 0)
    resolve_option("precision", options.precision, saved.precision, "")
    if not (_are_of_the_data(saved) and _are_of_the_data(options)):
        steps = (str(each.steps_per_epoch or None) for each in (options, saved))
        resolve_option("steps_per_epoch", *steps, "")
    change = _data_change(saved, options)
    if change is None:
        return replace(options, first_step=saved.first_step)
    epoch = len(progress.history) + 1
    if progress.step != progress.epoch_step:
        raise DataError(
            f"this job stopped in epoch {epoch}, after step {progress.step}, and its data have "
            f"changed from {change}: bring the data back until the epoch has ended, or use "
            f"{_FROM_SCRATCH}"
        )
    warn(f"the data have changed from {change}: epochs from {epoch} on train on the new data")
    return replace(options, first_step=progress.step)


def _are_of_the_data(options: RunOptions) -> bool:
    """Return whether an epoch is a pass over the data."""
    return options.steps_per_epoch == options.batches


def _data_change(saved: RunOptions, options: RunOptions) -> str | None:
    """Return how the data have changed, by what is known before and now; None if they have not."""
    for unit in ("examples", "batches"):
        before, now = getattr(saved, unit), getattr(options, unit)
        if before and now and before != now:
            return f"{before:,} to {now:,} {unit}"
    return None


def resolve_option(
    name: str, requested: _Value | None, saved: _Value | None, default: _Value
) -> _Value:
    """Return an option's value; a run that is resumed keeps what it was started with."""
    if saved is None:
        return default if requested is None else requested
    if requested is not None and requested != saved:
        raise PlanError(
            f"this job was started with {name} {saved} and cannot continue with {requested}: "
            f"use {name} {saved}, or {_FROM_SCRATCH}"
        )
    return saved
