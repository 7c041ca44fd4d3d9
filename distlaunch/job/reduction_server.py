"""Google's Reduction Server: its image, its machines and how many replicas a cluster needs.

Reduction Server adds up the gradients of GPU workers in a separate worker pool:
https://cloud.google.com/vertex-ai/docs/training/distributed-training#reduction-server
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from distlaunch.errors import Diagnostic, DistlaunchError

if TYPE_CHECKING:
    from distlaunch.job.model import Cluster, Job, Machine, Pool

KEY = "reduction_server"
TASK = "reduction-server"
"""The type in the names of its tasks: ``reduction-server:0``."""
POOL = 2
"""The index of its worker pool, which is otherwise that of the parameter servers."""
MACHINE = "n1-highcpu-16"

# The egress limit of n1-highcpu-16: 2 Gbps a vCPU, 32 at most.
_MACHINE_GBPS = 32
_MULTI_REGIONS = {
    "europe": "europe",
    "me": "europe",
    "africa": "europe",
    "asia": "asia",
    "australia": "asia",
}
_IMAGE_NAME = "reductionserver"


def image(region: str | None) -> str:
    """Return the image in the multi-region nearest to a region; None is the US."""
    continent = _MULTI_REGIONS.get((region or "").partition("-")[0], "us")
    return f"{continent}-docker.pkg.dev/vertex-ai-restricted/training/{_IMAGE_NAME}:latest"


def is_image(uri: str | None) -> bool:
    """Return whether an image is Google's Reduction Server."""
    return f"/{_IMAGE_NAME}" in (uri or "")


def replica_count(job: Job) -> int:
    """Return how many replicas the job's Reduction Server has.

    Where the job does not set the number, the replicas together can send as much as the chief and
    the workers together; a machine whose egress limit is not documented is a DistlaunchError.
    """
    if job.reduction_server and job.reduction_server.replicas:
        return job.reduction_server.replicas
    total = sum(pool.count * _egress_gbps(pool.machine) for pool in _training(job.cluster).values())
    return math.ceil(total / _MACHINE_GBPS)


def problem(job: Job) -> Diagnostic | None:
    """Return why the job cannot have a Reduction Server, at a key of the job file, if any."""
    servers = job.cluster.parameter_servers
    if servers and servers.count:
        what = f"cannot be combined with parameter servers: both are worker pool {POOL}"
        return Diagnostic(what, where=KEY)
    for name, pool in _training(job.cluster).items():
        if not pool.machine.gpu_count:
            reason = f"needs NVIDIA accelerators on the chief and the workers; cluster.{name} has"
            return Diagnostic(f"{reason} {pool.machine.accelerator or 'none'}", where=KEY)
    try:
        replica_count(job)
    except DistlaunchError as unknown:
        return unknown.problems[0]
    return None


def _training(cluster: Cluster) -> dict[str, Pool]:
    """Return the pools that train together, by their key in the job file."""
    pools = {"chief": cluster.chief, "workers": cluster.workers}
    return {name: pool for name, pool in pools.items() if pool and pool.count}


def _egress_gbps(machine: Machine) -> int:
    from distlaunch.job.machine_catalogue import bundled

    kind = bundled().machines.get(machine.type)
    gbps = kind.egress_limit(machine.accelerator, machine.accelerator_count) if kind else None
    if gbps is None:
        count = f" with {machine.accelerator_count} {machine.accelerator}"
        raise DistlaunchError(
            f"no egress limit is documented for {machine.type}"
            f"{count if machine.accelerator else ''}",
            where=f"{KEY}.replicas",
            remedy=f"write {KEY}.replicas: N",
        )
    return gbps
