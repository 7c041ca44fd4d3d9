"""Which replica reads which example at which step: pure arithmetic, no TensorFlow.

A *pass* over the data puts all examples into positions 0 ... n-1. Position ``p`` belongs to
logical shard ``p mod L``; step ``t`` is the positions ``tB ... (t+1)B - 1``; replica ``r`` of ``R``
owns the shards ``j ≡ r (mod R)`` and therefore exactly the positions ``p ≡ r (mod R)``. Where ``R``
divides ``L`` no shard is ever split, so every cluster whose size divides ``L`` sees the same global
batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd

from .errors import PlanError


@dataclass(frozen=True)
class Plan:
    """How ``examples`` are dealt out to ``replicas``, step by step.

    Parameters
    ----------
    examples
        Number of examples in one pass over the data.
    global_batch
        Rows of one step, over all replicas together.
    replicas
        Number of replicas that train in step.
    shards
        Number of logical shards; fixed for a job, whatever the size of its cluster.

    Raises
    ------
    PlanError
        If some replica would stand idle, or a shard would have to be split.
    """

    examples: int
    global_batch: int
    replicas: int = 1
    shards: int = 12

    def __post_init__(self) -> None:
        if self.examples < 1:
            raise PlanError("there are no examples to train on: the data holds 0 records")
        if self.global_batch < 1:
            raise PlanError(f"the global batch must be 1 or more, got {self.global_batch}")
        if self.shards < 1:
            raise PlanError(f"--shards must be 1 or more, got {self.shards}")
        if self.shards % self.replicas:
            sizes = ", ".join(str(n) for n in range(1, self.shards + 1) if self.shards % n == 0)
            raise PlanError(
                f"{self.replicas} replicas do not divide the {self.shards} logical shards: "
                f"use {sizes} replicas, or start a new job with --shards {self.replicas * 4}"
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

    @property
    def may_lack_rows(self) -> bool:
        """Whether the last batch is smaller than the cluster, so that some replica has no row."""
        return self.global_rows(self.steps - 1) < self.replicas

    def shards_of(self, replica: int) -> range:
        """Return the logical shards that ``replica`` reads."""
        return range(replica, self.shards, self.replicas)

    def shard_bounds(self, shard: int) -> tuple[int, int]:
        """Return the first and one past the last example of ``shard``; the longer shards first."""
        size, longer = divmod(self.examples, self.shards)
        start = shard * size + min(shard, longer)
        return start, start + size + (shard < longer)

    def position_of(self, shard: int, item: int) -> int:
        """Return the position in the pass of the ``item``-th example read from ``shard``."""
        return item * self.shards + shard

    def done_in_shard(self, shard: int, step: int) -> int:
        """Return how many examples of ``shard`` lie before step ``step`` of a pass."""
        return _congruent_below(self._position(step), shard, self.shards)

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
class Shares:
    """How a data set that TensorFlow shards is dealt out: each replica its own rows.

    Parameters
    ----------
    counts
        Rows of each replica in one pass.
    global_batch
        Rows of a step over all replicas, while all of them have some.

    Raises
    ------
    PlanError
        If the replicas cannot have equal parts of a batch, or there are no rows.
    """

    counts: tuple[int, ...]
    global_batch: int

    def __post_init__(self) -> None:
        if not self.examples:
            raise PlanError("there are no examples to train on: the data set is empty")
        if self.global_batch % self.replicas:
            below = self.global_batch // self.replicas * self.replicas
            fitting = [str(n) for n in (below, below + self.replicas) if n]
            raise PlanError(
                f"batch({self.global_batch}) of the data set is the global batch, and "
                f"{self.replicas} replicas cannot have equal parts of it: use "
                f"batch({') or batch('.join(fitting)})"
            )

    @property
    def replicas(self) -> int:
        """Number of replicas."""
        return len(self.counts)

    @property
    def examples(self) -> int:
        """Rows that all replicas together see in one pass."""
        return sum(self.counts)

    @property
    def batch(self) -> int:
        """Rows of a step on one replica."""
        return self.global_batch // self.replicas

    @property
    def steps(self) -> int:
        """Steps of one pass, which is as long as the longest share."""
        return max(self.steps_of(replica) for replica in range(self.replicas))

    @property
    def may_lack_rows(self) -> bool:
        """Whether some replica has no row left while others have."""
        return any(self.steps_of(replica) < self.steps for replica in range(self.replicas))

    def steps_of(self, replica: int) -> int:
        """Return the steps of a pass in which ``replica`` has rows."""
        return ceil(self.counts[replica] / self.batch)

    def examples_seen(self, steps: int) -> int:
        """Return how many rows ``steps`` steps from the start of a pass train on."""
        passes, rest = divmod(steps, self.steps)
        return passes * self.examples + sum(min(count, rest * self.batch) for count in self.counts)


def _congruent_below(position: int, residue: int, modulus: int) -> int:
    """Return how many of 0 ... position-1 leave ``residue`` when divided by ``modulus``."""
    return (position - residue + modulus - 1) // modulus


def coverage_note(plan: Plan | Shares, steps_per_epoch: int) -> str | None:
    """Say what a user's own number of steps makes of the data, or None where it fits exactly."""
    if steps_per_epoch == plan.steps:
        return None
    seen = plan.examples_seen(steps_per_epoch)
    right = f"--steps-per-epoch {plan.steps} (the default) sees each once"
    if steps_per_epoch < plan.steps:
        percent = 100 * seen // plan.examples
        return (
            f"--steps-per-epoch {steps_per_epoch} covers {percent} % of the {plan.examples:,} "
            f"examples and leaves {plan.examples - seen:,} to the next epoch; {right}"
        )
    times = seen * 10 // plan.examples / 10
    return (
        f"--steps-per-epoch {steps_per_epoch} sees each example {times} times in an epoch "
        f"of {plan.examples:,} examples; {right}"
    )
