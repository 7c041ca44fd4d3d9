"""Which machines and accelerators Vertex AI trains on, as its documentation has it in mid-2026."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distlaunch.emulator.service.rules import Problem

_LOCATION_NAMES = """
africa-south1 asia-east1 asia-east2 asia-northeast1 asia-northeast2 asia-northeast3 asia-south1
asia-south2 asia-southeast1 asia-southeast2 australia-southeast1 australia-southeast2
europe-central2 europe-north1 europe-north2 europe-southwest1 europe-west1 europe-west2
europe-west3 europe-west4 europe-west6 europe-west8 europe-west9 europe-west12 me-central1
me-central2 me-west1 northamerica-northeast1 northamerica-northeast2 southamerica-east1
southamerica-west1 us-central1 us-east1 us-east4 us-east5 us-south1 us-west1 us-west2 us-west3
us-west4
"""
LOCATIONS = frozenset(_LOCATION_NAMES.split())
FLEX_START = (
    "NVIDIA_L4",
    "NVIDIA_TESLA_A100",
    "NVIDIA_A100_80GB",
    "NVIDIA_H100_80GB",
    "NVIDIA_H100_MEGA_80GB",
    "NVIDIA_H200_141GB",
    "NVIDIA_B200",
)
"""The accelerators that FLEX_START schedules."""

_SIZES = {
    "e2-standard": "4 8 16 32",
    "e2-highmem": "2 4 8 16",
    "e2-highcpu": "16 32",
    "n2-standard": "4 8 16 32 48 64 80",
    "n2-highmem": "2 4 8 16 32 48 64 80",
    "n2-highcpu": "16 32 48 64 80",
    "n4-standard": "2 4 8 16 32 48 64 80",
    "n4-highmem": "2 4 8 16 32 48 64 80",
    "n4-highcpu": "2 4 8 16 32 48 64 80",
    "c2-standard": "4 8 16 30 60",
    "m1-ultramem": "40 80 160",
    "m1-megamem": "96",
    "n1-standard": "4 8 16 32 64 96",
    "n1-highmem": "2 4 8 16 32 64 96",
    "n1-highcpu": "16 32 64 96",
}
# Cores of an n1 machine → how many accelerators of each kind it takes.
_TAKES_ANY = {"P100": (1, 2, 4), "P4": (1, 2, 4), "T4": (1, 2, 4), "V100": (1, 2, 4, 8)}
_N1: Mapping[int, Mapping[str, tuple[int, ...]]] = {
    2: _TAKES_ANY,
    4: _TAKES_ANY,
    8: _TAKES_ANY,
    16: _TAKES_ANY | {"V100": (2, 4, 8)},
    32: {"P100": (2, 4), "P4": (2, 4), "T4": (2, 4), "V100": (4, 8)},
    64: {"P4": (4,), "T4": (4,), "V100": (8,)},
    96: {"P4": (4,), "T4": (4,), "V100": (8,)},
}
_P100_ON_64 = ("n1-highcpu-64",)
# Machines that come with their accelerators.
_BUILT_IN = {
    **{f"a2-highgpu-{n}g": ("NVIDIA_TESLA_A100", n) for n in (1, 2, 4, 8)},
    "a2-megagpu-16g": ("NVIDIA_TESLA_A100", 16),
    **{f"a2-ultragpu-{n}g": ("NVIDIA_A100_80GB", n) for n in (1, 2, 4, 8)},
    **{f"a3-highgpu-{n}g": ("NVIDIA_H100_80GB", n) for n in (1, 2, 4, 8)},
    "a3-megagpu-8g": ("NVIDIA_H100_MEGA_80GB", 8),
    "a3-ultragpu-8g": ("NVIDIA_H200_141GB", 8),
    "a4-highgpu-8g": ("NVIDIA_B200", 8),
    "a4x-highgpu-4g": ("NVIDIA_GB200", 4),
    **{f"g2-standard-{n}": ("NVIDIA_L4", 1) for n in (4, 8, 12, 16, 32)},
    "g2-standard-24": ("NVIDIA_L4", 2),
    "g2-standard-48": ("NVIDIA_L4", 4),
    "g2-standard-96": ("NVIDIA_L4", 8),
    **{f"g4-standard-{48 * n}": ("NVIDIA_RTX_PRO_6000", n) for n in (1, 2, 4, 8)},
}
_POD = "2x2 2x4 4x4 4x8 8x8 8x16 16x16"
_TOPOLOGIES = {
    "ct5lp-hightpu-1t": "1x1",
    "ct5lp-hightpu-4t": _POD,
    "ct5lp-hightpu-8t": "2x4",
    "ct6e-standard-1t": "1x1",
    "ct6e-standard-4t": _POD,
    "ct6e-standard-8t": "2x4",
    "tpu7x-standard-4t": "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16",
}
_BOTH = "Both `accelerator_type` and `accelerator_count` should be specified or none."


def machine_problems(spec: Any, path: str) -> Iterator[Problem]:
    """Tell what is wrong with a MachineSpec."""
    machine, count = spec.machine_type, spec.accelerator_count
    accelerator = accelerator_name(spec)
    if not machine:
        yield f"{path}.machine_type", "Machine type is required."
        return
    if count < 0:
        yield f"{path}.accelerator_count", "Accelerator count must not be negative."
    elif bool(accelerator) != bool(count):
        yield f"{path}.accelerator_type", _BOTH
    elif machine in _TOPOLOGIES:
        yield from _topology_problems(spec, path)
    elif machine == "cloud-tpu":
        yield from _cloud_tpu_problems(accelerator, count, path)
    elif machine not in _machines():
        text = f'Machine type "{machine}" is not supported for custom training.'
        yield f"{path}.machine_type", text
    else:
        yield from _accelerator_problems(machine, accelerator, count, path)


def accelerator_name(spec: Any) -> str:
    """Return the name of a MachineSpec's accelerator, or nothing where there is none."""
    if not spec.accelerator_type:
        return ""
    kind = spec.DESCRIPTOR.fields_by_name["accelerator_type"].enum_type
    return str(kind.values_by_number[spec.accelerator_type].name)


def is_tpu(spec: Any) -> bool:
    """Whether a MachineSpec is of a machine with TPUs."""
    return spec.machine_type == "cloud-tpu" or spec.machine_type in _TOPOLOGIES


def _accelerator_problems(
    machine: str, accelerator: str, count: int, path: str
) -> Iterator[Problem]:
    takes = _machines()[machine]
    if not accelerator:
        if machine in _BUILT_IN:
            kind, needed = _BUILT_IN[machine]
            text = f'Machine type "{machine}" requires accelerator_type {kind} with count {needed}.'
            yield f"{path}.accelerator_type", text
    elif accelerator not in takes:
        text = f'Accelerator "{accelerator}" is not compatible with machine type "{machine}".'
        yield f"{path}.accelerator_type", text
    elif count not in takes[accelerator]:
        allowed = ", ".join(map(str, takes[accelerator]))
        text = (
            f"Accelerator count {count} of {accelerator} is not supported on machine type "
            f'"{machine}"; supported: {allowed}.'
        )
        yield f"{path}.accelerator_count", text


def _topology_problems(spec: Any, path: str) -> Iterator[Problem]:
    known = _TOPOLOGIES[spec.machine_type].split()
    if spec.tpu_topology not in known:
        text = (
            f'TPU topology "{spec.tpu_topology}" is not supported on machine type '
            f'"{spec.machine_type}"; supported: {", ".join(known)}.'
        )
        yield f"{path}.tpu_topology", text
    if spec.accelerator_type:
        text = f'Machine type "{spec.machine_type}" takes a tpu_topology and no accelerator_type.'
        yield f"{path}.accelerator_type", text


def _cloud_tpu_problems(accelerator: str, count: int, path: str) -> Iterator[Problem]:
    if accelerator not in ("TPU_V2", "TPU_V3"):
        text = 'Machine type "cloud-tpu" requires accelerator_type TPU_V2 or TPU_V3.'
        yield f"{path}.accelerator_type", text
    elif count != 8 and (count < 32 or count % 32):
        text = "The accelerator count of cloud-tpu must be 8 or a multiple of 32."
        yield f"{path}.accelerator_count", text


@cache
def _machines() -> dict[str, dict[str, tuple[int, ...]]]:
    """Return which accelerators, and how many of them, each machine type takes."""
    made: dict[str, dict[str, tuple[int, ...]]] = {}
    for family, sizes in _SIZES.items():
        for cores in map(int, sizes.split()):
            takes = _N1[cores] if family.startswith("n1-") else {}
            made[f"{family}-{cores}"] = {f"NVIDIA_TESLA_{name}": n for name, n in takes.items()}
    for machine in _P100_ON_64:
        made[machine]["NVIDIA_TESLA_P100"] = (4,)
    for machine, (accelerator, count) in _BUILT_IN.items():
        made[machine] = {accelerator: (count,)}
    return made
