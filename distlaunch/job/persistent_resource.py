"""A persistent resource, machines that stay up between jobs, in Google's JSON names.

https://docs.cloud.google.com/vertex-ai/docs/training/persistent-resource-train
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch.job.vertex.view import pools_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from distlaunch.job.vertex.view import PoolRequest

COLLECTION = "persistentResources"
_OF_BOTH = ("network", "reservedIpRanges", "pscInterfaceConfig")  # a CustomJobSpec has them, too


class Shortage(NamedTuple):
    """Machines of which a job needs more than are free."""

    needed: int
    free: int
    most: int  # if all were free, and as far as they scale
    machine: str  # in words, of one


def shortages(
    resource: Mapping[str, Any], pools: Iterable[PoolRequest], at_once: int = 1
) -> list[Shortage]:
    """Return what a job, or so many trials at once, need and a persistent resource has not free."""
    needed: Counter[PoolRequest] = Counter()
    for pool in pools:
        machine = replace(pool, role="", replicas=1, image=None, module=None, variables=0)
        needed[machine] += pool.replicas * at_once
    short = []
    for machine, count in needed.items():
        fitting = [each for each in resource.get("resourcePools") or [] if fits(each, machine)]
        most = sum(map(_most, fitting))
        free = most - sum(int(each.get("usedReplicaCount", 0)) for each in fitting)
        if count > free:
            short.append(Shortage(count, free, most, machine.describe().removeprefix("1 x ")))
    return short


def fits(resource_pool: Mapping[str, Any], pool: PoolRequest) -> bool:
    """Whether a job's pool is of such machines; a disk that is left open is any."""
    own = pools_of([{**resource_pool, "replicaCount": 1}])[0]
    disks = ((own.disk_type, pool.disk_type), (own.disk_gb, pool.disk_gb))
    kinds = [
        (each.machine, each.accelerator, each.accelerator_count, each.topology)
        for each in (own, pool)
    ]
    return kinds[0] == kinds[1] and all(None in pair or pair[0] == pair[1] for pair in disks)


def build_body(name: str, job: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the persistent resource that a job with a CustomJobSpec needs to run on."""
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


def _most(resource_pool: Mapping[str, Any]) -> int:
    scaled = (resource_pool.get("autoscalingSpec") or {}).get("maxReplicaCount", 0)
    return max(int(resource_pool.get("replicaCount", 1)), int(scaled))
