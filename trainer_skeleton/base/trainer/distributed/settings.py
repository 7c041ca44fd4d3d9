"""The options of a run: those of the command line, and the user's own code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import keras

from .errors import PlanError

FLOAT = "float32"
_Value = TypeVar("_Value", int, str)


@dataclass(frozen=True)
class Settings:
    """The options of the command line; see ``python -m trainer.task --help``."""

    job_dir: str | None = None
    epochs: int = 5
    batch_size: int | None = None
    global_batch_size: int | None = None
    learning_rate: float | None = None
    steps_per_epoch: int | None = None
    seed: int | None = None
    shards: int | None = None
    shard_policy: str | None = None
    shuffle: int | None = None
    precision: str | None = None
    sync_batch_norm: bool = False
    checkpoint_every: int = 0
    resume: bool = True
    allow_cpu: bool = False
    gpu_memory_growth: bool = False
    debug: bool = False


@dataclass(frozen=True)
class UserCode:
    """What ``trainer/model.py`` and ``trainer/data.py`` give."""

    create_model: Callable[[], keras.Model]
    callbacks: Callable[[], list[keras.callbacks.Callback]]
    training: Callable[[], Any]
    validation: Callable[[], Any]


def kept(option: str, value: _Value | None, before: _Value | None, default: _Value) -> _Value:
    """Return an option's value; a run that is resumed keeps what it was started with.

    Raises
    ------
    PlanError
        If another value is given.
    """
    if before is None:
        return default if value is None else value
    if value is not None and value != before:
        raise PlanError(
            f"this job was started with {option} {before} and cannot continue with {value}: "
            f"use {option} {before}, or --no-resume to start from scratch"
        )
    return before
