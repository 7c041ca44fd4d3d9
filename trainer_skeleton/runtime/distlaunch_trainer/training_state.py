"""The state of a training run: its options, which stay the same, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RunOptions:
    """What stays the same when a run resumes; other data may begin with an epoch."""

    # The data, and their order; 0 for what is not known.
    examples: int
    global_batch: int
    shards: int
    seed: int
    shuffle: int
    steps_per_epoch: int
    # The values of options.
    precision: str
    learning_rate: float | None = None  # if one was given
    shard_policy: str = "data"
    rate_scale: int = 0  # with --scale-learning-rate the replicas when the run was started
    warmup_epochs: float = 0.0
    # Of the data: the batches of a pass, and the step before their first one.
    batches: int = 0
    first_step: int = 0


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    step: int = 0  # steps done, of all epochs
    history: list[dict[str, Any]] = field(default_factory=list)  # the records of the epochs done
    stopped: bool = False  # a callback has ended the training
    callbacks: list[Any] = field(default_factory=list)  # their state; its arrays are saved apart
    # The hooks that callbacks have begun the training, the epoch or the batch with, such as
    # ``on_epoch_begin``, and the learning rates before each, by the optimizer's name.
    begun: dict[str, dict[str, float]] = field(default_factory=dict)
    # Of the epoch that is not done: the step before its first one, and its examples and seconds.
    epoch_step: int = 0
    epoch_examples: int = 0
    epoch_seconds: float = 0.0
    # What the reader of the data needs to continue, beside the number of steps.
    position: list[int | None] = field(default_factory=list)


@dataclass(frozen=True)
class TrainingState:
    """The options of a run, and how far it is."""

    options: RunOptions
    progress: Progress

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> TrainingState:
        """Return the state that `asdict` has made a dict of."""
        return cls(RunOptions(**stored["options"]), Progress(**stored["progress"]))
