"""What AI Platform's names for machines and tiers stood for, and what of it there is today.

The names are those of its documentation (machine types, scale tiers, GPUs and TPUs of AI Platform
Training, 2018 to 2024). n1-highcpu-8, which one of them stood for, is none of Vertex AI's machines.
"""

from __future__ import annotations

from dataclasses import dataclass

from distlaunch.job.model import Machine

K80 = "NVIDIA_TESLA_K80"
P100 = "NVIDIA_TESLA_P100"
V100 = "NVIDIA_TESLA_V100"
T4 = "NVIDIA_TESLA_T4"

# Accelerators that Google has withdrawn, and since when.
GONE = {K80: "2024-05-01", P100: "2026-09-15"}
_MOST_T4 = 4  # on one machine

CLOUD_TPU = "cloud_tpu"
TPU_MACHINE = "cloud-tpu"  # Vertex AI's name of a TPU and the machine it is in
SMALLEST_TPU = Machine(TPU_MACHINE, "TPU_V2", 8)  # cores; what cloud_tpu was by default
# TPUs of AI Platform and what Vertex AI calls them; a pod is one with more cores.
TPUS = {"TPU_V2": "TPU_V2", "TPU_V2_POD": "TPU_V2", "TPU_V3": "TPU_V3", "TPU_V3_POD": "TPU_V3"}
TPUS_GONE = {"TPU_V4_POD"}

MACHINES = {
    "standard": Machine("n1-standard-4"),
    "large_model": Machine("n1-highmem-8"),
    "complex_model_s": Machine("n1-standard-8"),
    "complex_model_m": Machine("n1-highcpu-16"),
    "complex_model_l": Machine("n1-highcpu-32"),
    "standard_gpu": Machine("n1-standard-8", K80, 1),
    "complex_model_m_gpu": Machine("n1-standard-16", K80, 4),
    "complex_model_l_gpu": Machine("n1-standard-32", K80, 8),
    "standard_p100": Machine("n1-standard-8", P100, 1),
    "complex_model_m_p100": Machine("n1-standard-16", P100, 4),
    "standard_v100": Machine("n1-standard-8", V100, 1),
    "large_model_v100": Machine("n1-highmem-8", V100, 1),
    "complex_model_m_v100": Machine("n1-standard-16", V100, 4),
    "complex_model_l_v100": Machine("n1-standard-32", V100, 8),
    CLOUD_TPU: SMALLEST_TPU,
}
# Where it is not the very machine that the name stood for.
WHY_ANOTHER = {"complex_model_s": ", as Vertex AI has no n1-highcpu-8"}


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
