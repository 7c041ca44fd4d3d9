"""How the trainer divides examples among replicas: the same arithmetic as in the trainer package.

The launcher does not import the trainer; tests/golden/plan.json keeps both in agreement.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

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
    """Examples and the replicas that train on them.

    Parameters
    ----------
    replicas
        GPUs, or machines without one, that train in step.
    global_batch
        Rows of a step over all of them; None where unknown.
    shards
        Logical shards; None for a ``tf.data.Dataset``, which has none.
    examples
        In an epoch; None where unknown.
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
