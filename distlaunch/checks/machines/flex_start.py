"""The machines that FLEX_START starts.

https://cloud.google.com/vertex-ai/docs/training/schedule-jobs-dws documents them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.checks.machines.alternatives import change_to, machine_of
from distlaunch.checks.problem import error
from distlaunch.text import join_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.machines.alternatives import Availability
    from distlaunch.checks.problem import Problem
    from distlaunch.checks.request_view import JobRequest, PoolRequest
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.job.model import Machine


def flex_start_problems(request: JobRequest, available: Availability) -> Iterator[Problem]:
    """Yield what keeps FLEX_START from starting a job with this strategy."""
    if request.strategy != "FLEX_START":
        return
    fitting = [pool for pool in request.pools if may_start(machine_of(pool), available.catalogue)]
    for pool in request.pools:
        if pool not in fitting:
            yield _accelerator_problem(pool, available)
    if len({machine_of(pool) for pool in request.pools}) > 1:
        best = _describe(fitting[0]) if fitting else "the same machine and accelerator"
        pools = " and ".join(f"{pool.role} on {_describe(pool)}" for pool in request.pools)
        yield error(
            "flex-start-machines",
            "scheduling.strategy",
            f"FLEX_START starts identical machines, and this job has {pools}",
            f"give all pools {best}, or write scheduling.strategy: SPOT",
        )


def may_start(machine: Machine, catalogue: Catalogue) -> bool:
    """Whether FLEX_START starts a machine; True for an unknown one."""
    if machine.accelerator is None:
        return machine.type not in catalogue.machines
    is_known = machine.accelerator in catalogue.accelerators
    return machine.accelerator in catalogue.flex_start or not is_known


def _accelerator_problem(pool: PoolRequest, available: Availability) -> Problem:
    catalogue, name = available.catalogue, pool.accelerator
    kind = catalogue.machines.get(pool.machine)
    others = available.replacements(machine_of(pool), catalogue.flex_start)
    return error(
        "flex-start-accelerator",
        pool.key("accelerator.type" if name else "accelerator"),
        f"FLEX_START starts jobs on {join_names(catalogue.flex_start, 'or')}, and this is on "
        f"{name or (kind.tpu if kind else None) or 'CPUs'}",
        f"{change_to(machine_of(pool), others)}, or scheduling.strategy: SPOT",
    )


def _describe(pool: PoolRequest) -> str:
    return pool.describe().partition(" x ")[2]
