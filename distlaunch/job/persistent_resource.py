"""A persistent resource, machines that stay up between jobs, in Google's JSON names.

https://docs.cloud.google.com/vertex-ai/docs/training/persistent-resource-train
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.job.vertex.view import PoolRequest, pools_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_OF_BOTH = ("network", "reservedIpRanges", "pscInterfaceConfig")  # a CustomJobSpec has them, too


@dataclass(frozen=True, slots=True)
class MachinePool:
    """Equal machines of a persistent resource; `most` is more than are up where they scale."""

    machines: PoolRequest
    most: int
    used: int

    def fits(self, pool: PoolRequest) -> bool:
        """Whether a job's pool is of such machines; a disk that one leaves open is any."""
        own = self.machines
        disks = ((own.disk_type, pool.disk_type), (own.disk_gb, pool.disk_gb))
        return _kind(own) == _kind(pool) and all(
            None in (mine, other) or mine == other for mine, other in disks
        )


def read_pools(resource: Mapping[str, Any]) -> list[MachinePool]:
    """Return the pools of a persistent resource."""
    return [
        MachinePool(
            machines,
            max(
                machines.replicas,
                int((spec.get("autoscalingSpec") or {}).get("maxReplicaCount", 0)),
            ),
            int(spec.get("usedReplicaCount", 0)),
        )
        for spec in resource.get("resourcePools") or []
        for machines in pools_of([spec])
    ]


def place(
    pools: Iterable[PoolRequest], machine_pools: Sequence[MachinePool], at_once: int = 1
) -> tuple[Counter[int], list[PoolRequest]]:
    """Return how many machines of each pool a job needs, and its pools that fit none."""
    needed: Counter[int] = Counter()
    homeless = []
    for pool in pools:
        fitting = [index for index, each in enumerate(machine_pools) if each.fits(pool)]
        if fitting:
            needed[fitting[0]] += pool.replicas * at_once
        else:
            homeless.append(pool)
    return needed, homeless


def build_body(name: str, job: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the persistent resource that a job, with its CustomJobSpec, needs to run on."""
    pools: dict[str, dict[str, Any]] = {}
    for worker_pool in filter(None, spec["workerPoolSpecs"]):
        kind = {key: worker_pool[key] for key in ("machineSpec", "diskSpec") if key in worker_pool}
        pool = pools.setdefault(json.dumps(kind, sort_keys=True), {**kind, "replicaCount": 0})
        pool["replicaCount"] += worker_pool.get("replicaCount", 1) * job.get(
            "parallelTrialCount", 1
        )
    body: dict[str, Any] = {"displayName": name, "resourcePools": [*pools.values()]}
    body |= {key: spec[key] for key in _OF_BOTH if key in spec}
    body |= {key: job[key] for key in ("encryptionSpec",) if key in job}
    if "serviceAccount" in spec:  # without this, jobs there cannot run as it
        account = {"enableCustomServiceAccount": True, "serviceAccount": spec["serviceAccount"]}
        body["resourceRuntimeSpec"] = {"serviceAccountSpec": account}
    return body | {"labels": {"created-by": "distlaunch"}}


def _kind(pool: PoolRequest) -> tuple[object, ...]:
    return pool.machine, pool.accelerator, pool.accelerator_count, pool.topology
