"""The documented egress limits of machine types, in Gbit/s.

They are those of https://cloud.google.com/compute/docs/gpus/gpu-network-bandwidth (machines with
GPUs) and https://cloud.google.com/compute/docs/general-purpose-machines (N1, N2, E2, C2), without
Tier 1 networking. They are maxima: what a job reaches is less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distlaunch.job.model import Machine

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
# The limits of machines with other GPUs or none, by vCPUs; the last one is that of larger ones.
_GBPS_BY_VCPUS = {
    "n1": {1: 2, 2: 10, 4: 10, 8: 16, 16: 32},
    "n2": {2: 10, 4: 10, 8: 16, 16: 32},
    "e2": {2: 4, 4: 8, 8: 16},
    "c2": {4: 10, 8: 16, 16: 32},
}


def egress_gbps(machine: Machine) -> int | None:
    """Return the limit of a machine with its accelerators, None if none is documented."""
    if machine.type in _GBPS:
        return _GBPS[machine.type]
    size = machine.type.rpartition("-")[2]
    vcpus = int(size) if size.isdecimal() else 0
    if machine.accelerator in _N1_GBPS:
        limit = _N1_GBPS[machine.accelerator].get(machine.accelerator_count)
        return limit and min(_GBPS_PER_VCPU * vcpus, limit)
    limits = _GBPS_BY_VCPUS.get(machine.type.partition("-")[0], {0: 0})
    most = max(limits)
    return limits.get(vcpus, limits[most] if vcpus > most > 0 else None)
