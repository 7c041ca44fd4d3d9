"""The options of a run as its data decide them, the same when the run resumes."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from distlaunch_trainer.errors import DataError, PlanError
from distlaunch_trainer.input.order.plan import DEFAULT_SHARDS
from distlaunch_trainer.options import Settings
from distlaunch_trainer.training_state import RunOptions

from .batches import Data

_Value = TypeVar("_Value", int, str)

_DEFAULT_SHUFFLE = 10_000


def run_options(settings: Settings, replicas: int, saved: RunOptions | None) -> RunOptions:
    """Return the options of a run before its data are known: 0 for what is to be counted.

    ``saved`` are those of the run that is resumed, if there is one.
    """
    names = {"seed": 0, "shards": DEFAULT_SHARDS, "shuffle": _DEFAULT_SHUFFLE, "steps_per_epoch": 0}
    numbers = {
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
        rate_options=saved.rate_options if saved else None,
        **numbers,
    )


def with_data(options: RunOptions, data: Data) -> RunOptions:
    """Return the options with what is known of the data; refuse other data than before."""
    examples = data.plan.examples or 0
    if examples and options.examples not in {0, examples}:
        raise DataError(
            f"this job was started on {options.examples:,} examples and now finds "
            f"{examples:,}: bring the data back, or use --no-resume to start from scratch"
        )
    return replace(
        options,
        examples=examples or options.examples,
        global_batch=data.plan.global_batch,
        steps_per_epoch=options.steps_per_epoch or data.plan.steps,
    )


def resolve_option(
    name: str, requested: _Value | None, saved: _Value | None, default: _Value
) -> _Value:
    """Return an option's value; a run that is resumed keeps what it was started with."""
    if saved is None:
        return default if requested is None else requested
    if requested is not None and requested != saved:
        raise PlanError(
            f"this job was started with {name} {saved} and cannot continue with {requested}: "
            f"use {name} {saved}, or --no-resume to start from scratch"
        )
    return saved
