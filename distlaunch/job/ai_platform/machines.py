"""What AI Platform's names for machines and tiers stood for, and what of it there is today.

The names are those of its documentation (machine types, scale tiers, GPUs and TPUs of AI Platform
Training, 2018 to 2024); those of machines stand among the retired ones of the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.job.machine_catalogue import bundled

if TYPE_CHECKING:
    from distlaunch.job.model import Machine

T4 = "NVIDIA_TESLA_T4"
V100 = "NVIDIA_TESLA_V100"
_MOST_T4 = 4  # on one machine

# Accelerators that Google has withdrawn, and since when.
GONE = {name: gone.since.isoformat() for name, gone in bundled().retired_accelerators.items()}

CLOUD_TPU = "cloud_tpu"
TPU_MACHINE = "cloud-tpu"  # Vertex AI's name of a TPU and the machine it is in
# TPUs of AI Platform and what Vertex AI calls them; a pod is one with more cores.
TPUS = {"TPU_V2": "TPU_V2", "TPU_V2_POD": "TPU_V2", "TPU_V3": "TPU_V3", "TPU_V3_POD": "TPU_V3"}
TPUS_GONE = {"TPU_V4_POD"}

MACHINES = {name: gone.was for name, gone in bundled().retired_machines.items()}
SMALLEST_TPU = MACHINES[CLOUD_TPU]  # 8 cores; what cloud_tpu was by default
# Where it is not the very machine that the name stood for.
WHY_ANOTHER = {
    name: f", as {gone.why}" for name, gone in bundled().retired_machines.items() if gone.why
}


@dataclass(frozen=True, slots=True)
class Tier:
    """What a scale tier stood for, in names of `MACHINES`."""

    master: str
    worker: str = ""
    worker_count: int = 0
    parameter_server: str = ""
    parameter_server_count: int = 0


TIERS = {
    "BASIC": Tier("standard"),
    "STANDARD_1": Tier("complex_model_s", "complex_model_s", 4, "standard", 3),
    "PREMIUM_1": Tier("complex_model_m", "complex_model_m", 19, "large_model", 11),
    "BASIC_GPU": Tier("standard_gpu"),
    "BASIC_TPU": Tier("standard", CLOUD_TPU, 1),
}


def describe(machine: Machine) -> str:
    """Return a machine as a person says it: ``n1-standard-8 with 1 NVIDIA_TESLA_V100``."""
    if machine.accelerator is None:
        return machine.type
    return f"{machine.type} with {machine.accelerator_count} {machine.accelerator}"


def alternatives(count: int) -> tuple[str, ...]:
    """Return GPUs of today that a machine can have so many of."""
    return (T4, V100) if count <= _MOST_T4 else (V100,)
