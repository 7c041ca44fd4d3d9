"""Google's Reduction Server: its image, its machines and how many replicas a cluster needs.

Reduction Server adds up the gradients of GPU workers in a separate worker pool:
https://cloud.google.com/vertex-ai/docs/training/distributed-training#reduction-server

Egress limits are those of
https://cloud.google.com/compute/docs/gpus/gpu-network-bandwidth (machines with GPUs) and
https://cloud.google.com/compute/docs/general-purpose-machines#n1_machines (N1).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from distlaunch.errors import DistlaunchError

if TYPE_CHECKING:
    from distlaunch.job.model import Cluster, Job, Machine, Pool

KEY = "reduction_server"
TASK = "reduction-server"
"""The type in the names of its tasks: ``reduction-server:0``."""
POOL = 2
"""The index of its worker pool, which is otherwise that of the parameter servers."""
MACHINE = "n1-highcpu-16"

_MACHINE_GBPS = 32
_MULTI_REGIONS = {
    "europe": "europe",
    "me": "europe",
    "africa": "europe",
    "asia": "asia",
    "australia": "asia",
}
_IMAGE_NAME = "reductionserver"
_MACHINES_BY_GBPS = {
    10: ("g2-standard-4",),
    16: ("g2-standard-8", "g2-standard-12"),
    24: ("a2-highgpu-1g", "a2-ultragpu-1g"),
    25: ("a3-highgpu-1g",),
    32: ("a2-highgpu-2g", "a2-ultragpu-2g", "g2-standard-16", "g2-standard-24", "g2-standard-32"),
    50: ("a2-highgpu-4g", "a2-ultragpu-4g", "a3-highgpu-2g", "g2-standard-48"),
    100: (
        *("a2-highgpu-8g", "a2-ultragpu-8g", "a2-megagpu-16g"),
        *("a3-highgpu-4g", "g2-standard-96"),
    ),
    1000: ("a3-highgpu-8g",),
    1800: ("a3-megagpu-8g",),
    2000: ("a4x-highgpu-4g",),
    3600: ("a3-ultragpu-8g", "a4-highgpu-8g"),
}
_GBPS = {machine: gbps for gbps, machines in _MACHINES_BY_GBPS.items() for machine in machines}
# N1 machines with these have 2 Gbps per vCPU, up to a limit by the number of GPUs. The limits of
# other numbers are not documented, only that they are at most 100.
_N1_GBPS = {"NVIDIA_TESLA_T4": {1: 32}, "NVIDIA_TESLA_V100": {1: 32, 8: 100}}
_GBPS_PER_VCPU = 2
_N1_BY_VCPUS = {1: 2, 2: 10, 4: 10, 8: 16}  # with other GPUs or none; 32 from 16 vCPUs on
_N1_MOST = 32


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


def problem(job: Job) -> str | None:
    """Return why the job cannot have a Reduction Server (``KEY: REASON``), None if it can."""
    servers = job.cluster.parameter_servers
    if servers and servers.count:
        return f"{KEY}: cannot be combined with parameter servers: both are worker pool {POOL}"
    for name, pool in _training(job.cluster).items():
        if not (pool.machine.accelerator or "").startswith("NVIDIA"):
            reason = f"needs NVIDIA accelerators on the chief and the workers; cluster.{name} has"
            return f"{KEY}: {reason} {pool.machine.accelerator or 'none'}"
    try:
        replica_count(job)
    except DistlaunchError as unknown:
        return str(unknown)
    return None


def _training(cluster: Cluster) -> dict[str, Pool]:
    """Return the pools that train together, by their key in the job file."""
    pools = {"chief": cluster.chief, "workers": cluster.workers}
    return {name: pool for name, pool in pools.items() if pool and pool.count}


def _egress_gbps(machine: Machine) -> int:
    gbps = _GBPS.get(machine.type)
    if gbps is None and machine.type.startswith("n1-"):
        gbps = _n1_egress_gbps(machine)
    if gbps is None:
        count = f" with {machine.accelerator_count} {machine.accelerator}"
        raise DistlaunchError(
            f"{KEY}.replicas: no egress limit is documented for {machine.type}"
            f"{count if machine.accelerator else ''}; write {KEY}.replicas: N"
        )
    return gbps


def _n1_egress_gbps(machine: Machine) -> int | None:
    size = machine.type.rpartition("-")[2]
    vcpus = int(size) if size.isdecimal() else 0
    if machine.accelerator in _N1_GBPS:
        limit = _N1_GBPS[machine.accelerator].get(machine.accelerator_count)
        return limit and min(_GBPS_PER_VCPU * vcpus, limit)
    return _N1_BY_VCPUS.get(vcpus, _N1_MOST if vcpus > max(_N1_BY_VCPUS) else None)
