"""Which replica reads which example at which step: pure arithmetic, no TensorFlow.

A *pass* over the data puts all examples into positions 0 ... n-1. Position ``p`` belongs to
logical shard ``p mod L``; step ``t`` is the positions ``tB ... (t+1)B - 1``; replica ``r`` of ``R``
owns the shards ``j ≡ r (mod R)`` and therefore exactly the positions ``p ≡ r (mod R)``. Where ``R``
divides ``L`` no shard is ever split, so every cluster whose size divides ``L`` sees the same global
batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, gcd

from distlaunch_trainer.errors import PlanError

# Divisible by 1 to 6, 8, 10, 12, 15, 16, 20 and 24 replicas.
DEFAULT_SHARDS = 240


@dataclass(frozen=True)
class BatchPlan:
    """Which of ``examples`` each of ``replicas`` has, step by step."""

    examples: int  # in one pass over the data
    global_batch: int  # rows of one step, over all replicas together
    replicas: int = 1
    shards: int = DEFAULT_SHARDS  # logical ones, fixed for a job whatever the size of its cluster

    def __post_init__(self) -> None:
        if self.examples < 1:
            raise PlanError("there are no examples to train on: the data holds 0 records")
        if self.shards % self.replicas:
            sizes = ", ".join(str(n) for n in range(1, self.shards + 1) if self.shards % n == 0)
            raise PlanError(
                f"{self.replicas} replicas do not divide the {self.shards} logical shards: "
                f"use {sizes} replicas, or start a new job with --shards {self.replicas * 4} (parts"
                " of the data, equally many for each replica)"
            )
        if self.examples < self.replicas:
            raise PlanError(
                f"{self.replicas} replicas are more than the {self.examples} examples: "
                f"use {self.examples} or fewer"
            )
        if self.global_batch < self.replicas:
            raise PlanError(
                f"a global batch of {self.global_batch} leaves "
                f"{self.replicas - self.global_batch} of {self.replicas} replicas idle: "
                f"use --global-batch-size {self.replicas} or more"
            )

    @property
    def steps(self) -> int:
        """Steps of one pass: every example once, the last batch as small as it must be."""
        return ceil(self.examples / self.global_batch)

    @property
    def period(self) -> int:
        """Number of full steps after which a replica's row counts repeat."""
        return self.replicas // gcd(self.global_batch, self.replicas)

    @property
    def period_rows(self) -> int:
        """Rows one replica has in :attr:`period` full steps."""
        return self.period * self.global_batch // self.replicas

    def has_empty_replicas(self, step: int) -> bool:
        """Return whether some replica has no row in a step, counted over all passes.

        That can be the last step of a pass, if its batch is smaller than the cluster.
        """
        return self.global_rows(step % self.steps) < self.replicas

    def shards_of(self, replica: int) -> range:
        """Return the logical shards that ``replica`` reads."""
        return range(replica, self.shards, self.replicas)

    def rows(self, step: int, replica: int) -> int:
        """Return the rows that ``replica`` has in step ``step`` of a pass."""
        return self.rows_before(step + 1, replica) - self.rows_before(step, replica)

    def rows_before(self, step: int, replica: int) -> int:
        """Return the rows that ``replica`` has had before step ``step`` of a pass."""
        return _congruent_below(self._position(step), replica, self.replicas)

    def global_rows(self, step: int) -> int:
        """Return the rows of step ``step`` of a pass over all replicas together."""
        return self._position(step + 1) - self._position(step)

    def examples_seen(self, steps: int) -> int:
        """Return how many rows ``steps`` steps from the start of a pass train on."""
        passes, rest = divmod(steps, self.steps)
        return passes * self.examples + self._position(rest)

    def _position(self, step: int) -> int:
        return min(step * self.global_batch, self.examples)


@dataclass(frozen=True)
class SharedBatchPlan:
    """A user's data set of which all tasks iterate over the same batches.

    A step is one batch, of which replica ``r`` of ``R`` has the rows ``r, r + R, r + 2R ...``.
    """

    global_batch: int  # rows of a batch; batches may also have other sizes
    replicas: int = 1
    steps: int | None = None  # batches of a pass; None if unknown or endless
    examples: int | None = None  # rows of a pass; None if unknown or endless

    def __post_init__(self) -> None:
        if self.steps == 0:
            raise PlanError("there are no examples to train on: the data set is empty")
        if self.global_batch < self.replicas:
            raise PlanError(
                f"batch({self.global_batch}) of the data set leaves "
                f"{self.replicas - self.global_batch} of {self.replicas} replicas idle: use "
                f"batch({self.replicas}) or more"
            )


def _congruent_below(position: int, residue: int, modulus: int) -> int:
    """Return how many of 0 ... position-1 leave ``residue`` when divided by ``modulus``."""
    return (position - residue + modulus - 1) // modulus


AnyPlan = BatchPlan | SharedBatchPlan


def end_of_similar_steps(has_empty_replicas: Callable[[int], bool], first: int, end: int) -> int:
    """Return the end of the steps from ``first`` on that all have empty replicas, or all none.

    It is ``end`` at most.
    """
    is_like_first = has_empty_replicas(first)
    steps = range(first + 1, end)
    return next((step for step in steps if has_empty_replicas(step) != is_like_first), end)


def coverage_note(plan: AnyPlan, steps_per_epoch: int) -> str | None:
    """Describe what a user's number of steps makes of the data, None where it fits exactly.

    Figures are of examples, or of steps where the number of examples is not known.
    """
    if plan.steps is None or steps_per_epoch == plan.steps:
        return None
    total, unit = plan.steps, "steps"
    seen = steps_per_epoch
    if isinstance(plan, BatchPlan):
        total, unit = plan.examples, "examples"
        seen = plan.examples_seen(steps_per_epoch)
    remedy = f"--steps-per-epoch {plan.steps} (the default) sees each once"
    if steps_per_epoch < plan.steps:
        return (
            f"--steps-per-epoch {steps_per_epoch} covers {100 * seen // total} % of the {total:,} "
            f"{unit} and leaves {total - seen:,} to the next epoch; {remedy}"
        )
    return (
        f"--steps-per-epoch {steps_per_epoch} sees each example {seen * 10 // total / 10} times in "
        f"an epoch of {total:,} {unit}; {remedy}"
    )
