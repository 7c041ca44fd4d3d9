"""AI Platform's names for machines and scale tiers, and what they are on Vertex AI.

The names are those of its documentation (machine types, scale tiers, GPUs and TPUs of AI Platform
Training, 2018 to 2024); the machines are in the catalogue's ``retired`` section.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.job.machine_catalogue import bundled

if TYPE_CHECKING:
    from distlaunch.job.model import Machine

WITHDRAWN = {
    name: retired.since.isoformat() for name, retired in bundled().retired_accelerators.items()
}
"""The day on which Google withdrew each accelerator."""

CLOUD_TPU = "cloud_tpu"
TPU_MACHINE = "cloud-tpu"  # Vertex AI's machine type of a TPU
# TPUs of AI Platform and their names on Vertex AI, where a pod is one with more cores.
TPUS = {"TPU_V2": "TPU_V2", "TPU_V2_POD": "TPU_V2", "TPU_V3": "TPU_V3", "TPU_V3_POD": "TPU_V3"}
WITHDRAWN_TPUS = {"TPU_V4_POD"}

MACHINES = {name: retired.replacement for name, retired in bundled().retired_machines.items()}
SMALLEST_TPU = MACHINES[CLOUD_TPU]  # 8 cores: the default of cloud_tpu
SUBSTITUTION_NOTE = {
    name: f", as {retired.why}"
    for name, retired in bundled().retired_machines.items()
    if retired.why
}
"""Why a machine is not the same as the former one, where it is not."""


@dataclass(frozen=True, slots=True)
class Tier:
    """The machines of a scale tier, by their names in `MACHINES`."""

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


def describe_machine(machine: Machine) -> str:
    """Return a machine in words: ``n1-standard-8 with 1 NVIDIA_TESLA_V100``."""
    if machine.accelerator is None:
        return machine.type
    return f"{machine.type} with {machine.accelerator_count} {machine.accelerator}"
