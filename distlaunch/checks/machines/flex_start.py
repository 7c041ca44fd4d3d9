"""What a job must look like to be started by FLEX_START, when there are machines for all of it.

https://cloud.google.com/vertex-ai/docs/training/schedule-jobs-dws says what that takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.checks.machines.alternatives import either, short
from distlaunch.checks.problem import error
from distlaunch.job.model import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.machines.alternatives import Market
    from distlaunch.checks.problem import Problem
    from distlaunch.checks.request_view import JobRequest, PoolRequest
    from distlaunch.job.machine_catalogue import Catalogue


def flex_start_problems(asked: JobRequest, market: Market) -> Iterator[Problem]:
    """Yield what keeps FLEX_START from starting a job, where the job is to be started so.

    Parameters
    ----------
    asked
        What the job asks for.
    market
        What there is.
    """
    if asked.strategy != "FLEX_START":
        return
    known = market.catalogue
    for pool in asked.pools:
        if not may_start(pool.machine, pool.accelerator, known):
            yield _accelerator_problem(pool, market)
    kinds = {_kind(pool): pool for pool in reversed(asked.pools)}
    if len(kinds) > 1:
        fitting = [
            kind for kind, pool in kinds.items() if may_start(pool.machine, pool.accelerator, known)
        ]
        best = fitting[-1] if fitting else "the same machine and accelerator"
        pools = " and ".join(f"{pool.role} on {_kind(pool)}" for pool in asked.pools)
        yield error(
            "flex-start-machines",
            "scheduling.strategy",
            f"FLEX_START starts identical machines, and this has {pools}",
            f"give all pools {best}, or write scheduling.strategy: SPOT",
        )


def may_start(machine: str, accelerator: str | None, catalogue: Catalogue) -> bool:
    """Whether FLEX_START starts a machine, as far as it is known what it is."""
    if accelerator is None:
        return machine not in catalogue.machines
    return accelerator in catalogue.flex_start or accelerator not in catalogue.accelerators


def _accelerator_problem(pool: PoolRequest, market: Market) -> Problem:
    catalogue, name = market.catalogue, pool.accelerator
    kind = catalogue.machines.get(pool.machine)
    wanted = Machine(pool.machine, name, pool.accelerator_count)
    others = market.in_place_of(wanted, catalogue.flex_start)
    return error(
        "flex-start-accelerator",
        pool.key("accelerator.type" if name else "accelerator"),
        f"FLEX_START starts jobs on {short(catalogue.flex_start)}, and this is on "
        f"{name or (kind.tpu if kind else None) or 'CPUs'}",
        f"{either(wanted, others)}, or scheduling.strategy: SPOT",
    )


def _kind(pool: PoolRequest) -> str:
    """Say what one machine of a pool is."""
    return pool.describe().partition(" x ")[2]
