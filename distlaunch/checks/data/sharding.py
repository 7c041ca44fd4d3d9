"""How the trainer divides examples among replicas: the same arithmetic as in the trainer package.

The launcher does not import the trainer; tests/golden/plan.json keeps both in agreement.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from distlaunch.text import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

BATCH = 32
"""Default rows of a step on a replica."""

SHARDS = 12
"""Default number of logical shards."""

_OPTIONS = ("--batch-size", "--global-batch-size", "--shards", "--steps-per-epoch")


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """The trainer's options about batches and steps; None where the job does not set them."""

    batch: int | None = None
    global_batch: int | None = None
    shards: int | None = None
    steps: int | None = None


def batch_options(options: Mapping[str, str | bool]) -> BatchOptions | None:
    """Return the options, None where one of them is not a whole number above 0."""
    try:
        return BatchOptions(*(_number(options.get(name)) for name in _OPTIONS))
    except ValueError:
        return None


def _number(value: str | bool | None) -> int | None:
    if value is None:
        return None
    number = 0 if isinstance(value, bool) else int(value)
    if number < 1:
        raise ValueError
    return number


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Examples and the replicas that train on them in step: GPUs, or machines without one.

    `global_batch` is the rows of a step over all of them. `shards` is None for a
    ``tf.data.Dataset``, which has none. `examples` are those of an epoch. None is unknown.
    """

    replicas: int
    global_batch: int | None
    shards: int | None = SHARDS
    examples: int | None = None

    @property
    def steps(self) -> int | None:
        """Steps in which each example is seen once."""
        if not self.global_batch or self.examples is None:
            return None
        return ceil(self.examples / self.global_batch)

    @property
    def rows(self) -> tuple[int, int] | None:
        """The fewest and the most rows of a replica in a step, except in a smaller last one."""
        if not self.global_batch:
            return None
        full = min(self.global_batch, self.examples or self.global_batch)
        return full // self.replicas, ceil(full / self.replicas)

    @property
    def last_rows(self) -> int | None:
        """Rows of the last step of an epoch over all replicas."""
        if not self.global_batch or not self.examples:
            return None
        return (self.examples - 1) % self.global_batch + 1

    def rows_seen(self, steps: int) -> int | None:
        """Return on how many rows a number of steps trains."""
        if not self.steps or not self.global_batch or not self.examples:
            return None
        epochs, rest = divmod(steps, self.steps)
        return epochs * self.examples + min(rest * self.global_batch, self.examples)

    @property
    def allowed_replicas(self) -> tuple[int, ...]:
        """The numbers of replicas that divide the shards."""
        shards = self.shards or 0
        return tuple(size for size in range(1, shards + 1) if shards % size == 0)


@dataclass(frozen=True, slots=True)
class DataFacts:
    """The data and their plan.

    `files` are those that the container has, and `requested_steps` the steps per epoch of the job.
    `unknown` is why files and examples are unknown, empty where they are known.
    """

    plan: ShardPlan
    files: int | None = None
    requested_steps: int | None = None
    unknown: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data; ``is_all`` is kept for scripts that read it."""
        plan = self.plan
        return asdict(plan) | {
            "files": self.files,
            "is_all": True,
            "steps_per_epoch": self.requested_steps or plan.steps,
            "rows": plan.rows,
            "last_rows": None if self.requested_steps else plan.last_rows,
            "unknown": self.unknown,
        }

    def lines(self) -> tuple[str, ...]:
        """Return the lines of the plan that `check` prints."""
        return tuple(filter(None, (self._examples_line(), self._steps_line())))

    def _examples_line(self) -> str:
        if self.plan.examples is None:
            return f"unknown (run 'distlaunch check --run' or 'distlaunch local'): {self.unknown}"
        files = f" in {plural(self.files, 'file')}" if self.files else ""
        return f"{plural(self.plan.examples, 'example')}{files}"

    def _steps_line(self) -> str:
        plan = self.plan
        if not plan.global_batch or not plan.rows:
            return ""
        text = f"{plural(plan.global_batch, 'row')} a step"
        if plan.replicas > 1:
            share = " or ".join(f"{rows:,}" for rows in sorted(set(plan.rows)))
            text += f", {share} on each of {plan.replicas:,} replicas"
        steps = self.requested_steps or plan.steps
        if steps:
            text += f"; {plural(steps, 'step')} an epoch"
        is_smaller = plan.last_rows and plan.last_rows != plan.global_batch
        if is_smaller and not self.requested_steps and steps and steps > 1:
            text += f", the last of {plan.last_rows:,}"
        return text
