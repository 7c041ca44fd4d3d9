"""Jobs on TPUs: one replica, with a topology or a number of cores that exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.checks.machines.alternatives import nearest
from distlaunch.checks.problem import error
from distlaunch.job.machine_catalogue import chips
from distlaunch.text import join_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.request_view import JobRequest, PoolRequest
    from distlaunch.job.machine_catalogue import Catalogue, MachineType

_MOST_COUNTS = 4  # that are listed before the largest


def tpu_problems(request: JobRequest, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield the problems of a job's TPUs."""
    for pool in request.pools:
        kind = catalogue.machines.get(pool.machine)
        if kind is None or not kind.has_tpu:
            continue
        if len(request.pools) > 1:
            yield error(
                "tpu-pools",
                pool.section,
                f"a job on TPUs has one pool, got {len(request.pools)}",
                f"remove the others: cluster: {{chief: {{machine: {pool.machine}}}}}",
            )
        if pool.replicas > 1:
            yield error(
                "tpu-replicas",
                pool.key("count"),
                f"a job on TPUs has one replica, got {pool.replicas}",
                "write count: 1, and choose a larger TPU",
            )
        yield from _shape_problems(pool, kind, request.spec)


def _shape_problems(pool: PoolRequest, kind: MachineType, spec: str) -> Iterator[Problem]:
    if kind.topologies and pool.topology not in kind.topologies:
        wanted = chips(pool.topology or "")
        topology = min(kind.topologies, key=lambda each: abs(chips(each) - wanted))
        spec_text = f"{{workerPoolSpecs: [{{machineSpec: {{tpuTopology: {topology}}}}}]}}"
        yield error(
            "tpu-topology",
            pool.key("machine"),
            f"{pool.machine} has the topologies {join_names(kind.topologies, 'or')}, "
            f"got {pool.topology or 'none'}",
            f"write vertex: {{{spec}: {spec_text}}}",
        )
    counts = kind.accelerators.get(pool.accelerator or "", ())
    if counts and pool.accelerator_count not in counts:
        listed = ", ".join(map(str, counts[:_MOST_COUNTS]))
        largest = f", … {counts[-1]}" if len(counts) > _MOST_COUNTS else ""
        yield error(
            "tpu-count",
            pool.key("accelerator.count"),
            f"{pool.accelerator} has {listed}{largest} cores, got {pool.accelerator_count}",
            f"write count: {nearest(pool.accelerator_count, counts)}",
        )
