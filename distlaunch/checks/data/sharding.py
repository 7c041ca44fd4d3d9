"""How the trainer deals examples out to replicas: the arithmetic of its engine room.

It is written here anew, as a launcher has no trainer to import; tests/golden/plan.json holds the
two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

BATCH = 32
"""Rows of a step on a replica where nothing else is said."""

SHARDS = 12
"""Logical shards where nothing else is said."""

_NUMBERS = ("--batch-size", "--global-batch-size", "--shards", "--steps-per-epoch")


@dataclass(frozen=True, slots=True)
class Told:
    """What the trainer is told about the data; None is what the job doesn't say."""

    batch: int | None = None
    global_batch: int | None = None
    shards: int | None = None
    steps: int | None = None


def told(options: Mapping[str, str | bool]) -> Told | None:
    """Return what options say, None where one of them is no whole number above 0."""
    try:
        numbers = [_number(options.get(name)) for name in _NUMBERS]
    except ValueError:
        return None
    return Told(*numbers)


def _number(word: str | bool | None) -> int | None:
    if word is None:
        return None
    number = 0 if isinstance(word, bool) else int(word)
    if number < 1:
        raise ValueError
    return number


@dataclass(frozen=True, slots=True)
class Dealing:
    """Examples and who trains on them.

    Parameters
    ----------
    replicas
        GPUs, or machines without one, that train in step.
    global_batch
        Rows of a step over all of them; None where that cannot be told.
    shards
        Logical shards; None for a data set of the user's own, which has none.
    examples
        In an epoch; None where that cannot be told.
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
        """The fewest and the most rows of a replica in a step, but for a smaller last one."""
        if not self.global_batch:
            return None
        whole = min(self.global_batch, self.examples or self.global_batch)
        return whole // self.replicas, ceil(whole / self.replicas)

    @property
    def last_rows(self) -> int | None:
        """Rows of the last step of an epoch over all replicas."""
        if not self.global_batch or not self.examples:
            return None
        return (self.examples - 1) % self.global_batch + 1

    def seen(self, steps: int) -> int | None:
        """Return on how many rows so many steps train."""
        if not self.steps or not self.global_batch or not self.examples:
            return None
        epochs, rest = divmod(steps, self.steps)
        return epochs * self.examples + min(rest * self.global_batch, self.examples)

    @property
    def fitting(self) -> tuple[int, ...]:
        """The numbers of replicas that the shards can be dealt out to."""
        shards = self.shards or 0
        return tuple(size for size in range(1, shards + 1) if shards % size == 0)
