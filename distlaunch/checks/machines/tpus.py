"""What a job on TPUs must look like."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from distlaunch.checks.machines.alternatives import nearest, short
from distlaunch.checks.problem import error
from distlaunch.job.machine_catalogue import chips

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.request_view import JobRequest, PoolRequest
    from distlaunch.job.machine_catalogue import Catalogue, MachineType

_TOLD = 4  # counts, before the rest is only said to follow


def tpu_problems(asked: JobRequest, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield what speaks against a job's TPUs: Vertex AI takes one machine of them, and no other.

    Parameters
    ----------
    asked
        What the job asks for.
    catalogue
        What there is.
    """
    for pool in asked.pools:
        kind = catalogue.machines.get(pool.machine)
        if kind is None or not kind.has_tpu:
            continue
        if len(asked.pools) > 1:
            yield error(
                "tpu-pools",
                pool.section,
                f"a job on TPUs has one pool, and this has {len(asked.pools)}",
                f"leave the machine with TPUs alone, as cluster: {{chief: {{machine: "
                f"{pool.machine}}}}}",
            )
        if pool.replicas > 1:
            yield error(
                "tpu-replicas",
                pool.key("count"),
                f"a job on TPUs has one machine of them, and this asks for {pool.replicas}",
                "write count: 1, and more TPUs on that one",
            )
        yield from _shape_problems(pool, kind, asked.spec)


def _shape_problems(pool: PoolRequest, kind: MachineType, spec: str) -> Iterator[Problem]:
    if kind.topologies and pool.topology not in kind.topologies:
        has = f"with the topology {pool.topology}" if pool.topology else "without a topology"
        yield error(
            "tpu-topology",
            pool.key("machine"),
            f"{pool.machine} is asked for {has}, and it comes in {short(kind.topologies)}",
            f"write {_topology(pool, kind, spec)}",
        )
    counts = kind.accelerators.get(pool.accelerator or "", ())
    if counts and pool.accelerator_count not in counts:
        told = ", ".join(map(str, counts[:_TOLD]))
        and_on = f" and so on to {counts[-1]}" if len(counts) > _TOLD else ""
        yield error(
            "tpu-count",
            pool.key("accelerator.count"),
            f"{pool.accelerator} comes with {told}{and_on} cores, not with "
            f"{pool.accelerator_count}",
            f"write count: {nearest(pool.accelerator_count, counts)}",
        )


def _topology(pool: PoolRequest, kind: MachineType, spec: str) -> str:
    """Return what a job file says of a topology: the known one that has the likest chips."""
    wanted = chips(pool.topology or "")
    likest = min(kind.topologies, key=lambda each: abs(chips(each) - wanted))
    said = {spec: {"workerPoolSpecs": [{"machineSpec": {"tpuTopology": likest}}]}}
    return f"vertex: {json.dumps(said)}".replace('"', "")
