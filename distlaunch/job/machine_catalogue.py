"""The machines, accelerators and regions that Vertex AI offers for training, and retired ones.

The data is in ``catalogue.json``, with its source and date. Accelerators have the names of Google's
AcceleratorType, and TPU_V6E and TPU_7X, which it does not have; regions list a TPU_V2 or TPU_V3 of
more than 8 cores as TPU_V2_POD or TPU_V3_POD. GB are Compute Engine's, which are GiB. A project's
``distlaunch.catalogue.yaml`` has the same shape and is merged into it; null removes a key. What is
in `families` holds for each machine of a family that does not set it itself.

Egress limits are those of https://cloud.google.com/compute/docs/gpus/gpu-network-bandwidth and
https://cloud.google.com/compute/docs/general-purpose-machines, without Tier 1 networking. They are
maxima: what a job reaches is less.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.errors import did_you_mean
from distlaunch.job.model import Machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FILE_NAME = "distlaunch.catalogue.yaml"
"""The file in a project folder that extends the catalogue."""

_POD_CORES = 8  # of a TPU_V2 or TPU_V3; one with more is a pod
_PODS = {"TPU_V2": "TPU_V2_POD", "TPU_V3": "TPU_V3_POD"}
_GBPS_PER_VCPU = 2  # of N1 machines with GPUs


@dataclass(frozen=True, slots=True)
class MachineType:
    """A machine type; what is unknown is None.

    `accelerators` are the counts that it takes of each, `topologies` those of its `tpu`, such as
    ``2x4``. With `rdma`, its GPUs communicate by RDMA, and a training program must source
    ``set_nccl_env.sh`` before it starts:
    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/configure-compute
    `gpu_egress_gbps` are limits by accelerator and number, which replace `egress_gbps`. The first
    of `boot_disks` is the default.
    """

    family: str
    cpus: int | None = None
    memory_gb: float | None = None
    accelerators: Mapping[str, Sequence[int]] = field(default_factory=dict)
    needs_accelerator: bool = False
    topologies: Sequence[str] = ()
    tpu: str | None = None
    architecture: str = "amd64"
    rdma: bool = False
    egress_gbps: int | None = None
    gpu_egress_gbps: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    boot_disks: Sequence[str] = ("pd-ssd", "pd-standard", "hyperdisk-balanced")
    cpu_quota: str | None = None  # None for that of its family's name
    price_includes_gpus: bool = False

    @property
    def has_tpu(self) -> bool:
        """Whether it is a machine with TPUs."""
        has_topology = self.tpu is not None or bool(self.topologies)
        return has_topology or any(name.startswith("TPU_") for name in self.accelerators)

    def takes(self, accelerator: str, count: int) -> bool:
        """Return whether it takes this number of an accelerator."""
        return count in self.accelerators.get(accelerator, ())

    def egress_limit(self, accelerator: str | None, count: int) -> int | None:
        """Return the limit in Gbit/s with some accelerators, None if none is documented."""
        by_count = self.gpu_egress_gbps.get(accelerator or "")
        if by_count is None:
            return self.egress_gbps
        limit = by_count.get(str(count))
        return limit and min(_GBPS_PER_VCPU * (self.cpus or 0), limit)


@dataclass(frozen=True, slots=True)
class RetiredAccelerator:
    """An accelerator that Google withdraws: from which day, and replacements, the closest first."""

    since: dt.date
    replacements: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RetiredMachine:
    """A former name of a machine, from which day, and the machine in current names."""

    since: dt.date
    replacement: Machine  # its accelerator may be retired, too
    why: str | None = None  # the replacement is not the same machine, if it is not


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Machines, regions and retired names; `flex_start` are the accelerators for FLEX_START.

    `regions` are the uses of their accelerators, training or elsewhere, empty if unknown.
    `families` are what the machines of a family have in common; `compute_capability` is NVIDIA's
    number by accelerator, and `accelerator_quotas` are the quotas that do not have its name.
    """

    source: str
    date: str
    families: Mapping[str, Mapping[str, Any]]
    machines: Mapping[str, MachineType]
    regions: Mapping[str, Mapping[str, str]]
    flex_start: tuple[str, ...]
    compute_capability: Mapping[str, float]
    accelerator_quotas: Mapping[str, str]
    retired_accelerators: Mapping[str, RetiredAccelerator]
    retired_machines: Mapping[str, RetiredMachine]

    def machine(self, name: str) -> MachineType:
        """Return a machine type; of an unknown one, what the family in its name has in common."""
        return self.machines.get(name) or _machine(name, {}, self.families)

    @property
    def accelerators(self) -> frozenset[str]:
        """All accelerators that the catalogue mentions."""
        on_machines = {name for kind in self.machines.values() for name in kind.accelerators}
        tpus = {kind.tpu for kind in self.machines.values() if kind.tpu}
        in_regions = {name for uses in self.regions.values() for name in uses}
        return frozenset(on_machines | tpus | in_regions | self.retired_accelerators.keys())

    def offers(self, region: str, accelerator: str) -> bool | None:
        """Return whether a region offers an accelerator for training, None if unknown."""
        uses = self.regions.get(region)
        is_anywhere = any(accelerator in each for each in self.regions.values())
        return uses.get(accelerator) == "training" if uses and is_anywhere else None

    def regions_with(self, accelerator: str) -> tuple[str, ...]:
        """Return the regions that are known to offer an accelerator for training."""
        return tuple(name for name in self.regions if self.offers(name, accelerator))

    def machines_with(self, accelerator: str, count: int) -> tuple[str, ...]:
        """Return the machines that take this number of an accelerator, the smallest first."""
        fitting = [name for name, kind in self.machines.items() if kind.takes(accelerator, count)]
        return tuple(sorted(fitting, key=self._size))

    def may_flex_start(self, machine: Machine) -> bool:
        """Return whether FLEX_START starts a machine; True for an unknown one.

        https://cloud.google.com/vertex-ai/docs/training/schedule-jobs-dws documents them.
        """
        if machine.accelerator is None:
            return machine.type not in self.machines
        is_known = machine.accelerator in self.accelerators
        return machine.accelerator in self.flex_start or not is_known

    def is_retired(self, name: str, today: dt.date) -> bool:
        """Return whether a machine or an accelerator is withdrawn by a day."""
        retired = self.retired_accelerators.get(name) or self.retired_machines.get(name)
        return retired is not None and retired.since <= today

    def replacements(self, accelerator: str, count: int, machine_type: str) -> tuple[str, ...]:
        """Return the replacements of a retired accelerator that a machine takes, closest first."""
        names = self.retired_accelerators[accelerator].replacements
        machine = self.machine(machine_type)
        fitting = tuple(name for name in names if machine.takes(name, count))
        return fitting or tuple(names)

    def _size(self, machine: str) -> tuple[float, float]:
        kind = self.machines[machine]
        return kind.cpus or math.inf, kind.memory_gb or math.inf


def offered_as(kind: MachineType, accelerator: str | None, count: int) -> str | None:
    """Return the name under which regions offer a machine's accelerator, None without one."""
    if accelerator is None:
        return kind.tpu
    return _PODS.get(accelerator, accelerator) if count > _POD_CORES else accelerator


def chips(topology: str) -> int:
    """Return the number of chips of a TPU topology: 8 for ``2x4``, 0 for anything else."""
    sides = topology.split("x")
    return math.prod(map(int, sides)) if all(side.isdecimal() for side in sides) else 0


def load(file: Path | None) -> Catalogue:
    """Return the catalogue, extended by a user's file."""
    if file is None:
        return bundled()
    from distlaunch.job.catalogue_file import extend_catalogue

    return _catalogue(extend_catalogue(_data(), file))


def of_project(folder: Path, chosen: Path | None = None) -> Catalogue:
    """Return the catalogue with the user's file: the chosen one, else the project's, if any."""
    own = folder / FILE_NAME
    return load(chosen or (own if own.exists() else None))


@cache
def bundled() -> Catalogue:
    """Return the catalogue of this release."""
    return _catalogue(_data())


def _data() -> dict[str, Any]:
    text = Path(__file__).with_name("catalogue.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def _catalogue(data: Mapping[str, Any]) -> Catalogue:
    retired, families = data["retired"], data["families"]
    return Catalogue(
        source=data["source"],
        date=data["date"],
        families=families,
        machines={
            name: _machine(name, entry, families) for name, entry in data["machines"].items()
        },
        regions=data["regions"],
        flex_start=tuple(data["flex_start"]),
        compute_capability=data["compute_capability"],
        accelerator_quotas=data["accelerator_quotas"],
        retired_accelerators={
            name: RetiredAccelerator(_day(entry), entry.get("instead", ()))
            for name, entry in retired["accelerators"].items()
        },
        retired_machines={
            name: RetiredMachine(_day(entry), _replacement(entry), entry.get("why"))
            for name, entry in retired["machines"].items()
        },
    )


def _machine(
    name: str, entry: Mapping[str, Any], families: Mapping[str, Mapping[str, Any]]
) -> MachineType:
    family = entry.get("family") or name.partition("-")[0].upper()
    fields = {**families.get(family, {}), **entry, "family": family}
    needs_accelerator = bool(fields.get("accelerators")) and fields.get("needs_accelerator", False)
    return MachineType(**{**fields, "needs_accelerator": needs_accelerator})


def _day(entry: Mapping[str, Any]) -> dt.date:
    return dt.date.fromisoformat(entry["since"])


def _replacement(entry: Mapping[str, Any]) -> Machine:
    accelerator = entry.get("accelerator")
    return Machine(entry["machine"], accelerator, entry.get("count", 1) if accelerator else 0)


def suggest_accelerator(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean …?`` for an unknown accelerator such as ``T4``, or nothing."""
    names = list(known)
    word = name.upper().removeprefix("NVIDIA_").removeprefix("TESLA_")
    similar = [each for each in names if f"_{word}_" in f"_{each}_"]
    if not similar:
        return did_you_mean(name, names)
    closest = min(similar, key=lambda each: (not each.endswith(f"_{word}"), len(each), each))
    return f"; did you mean {closest!r}?"


def suggest_machine(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean …?`` for an unknown machine: the next larger one of its series."""
    names = list(known)
    series, size = _series_and_size(name)
    sizes = {known_size: each for each in names if (known_size := _size_in(series, each))}
    larger = sorted(each for each in sizes if each >= size)
    if not size or not sizes:
        return did_you_mean(name, names)
    return f"; did you mean {sizes[larger[0] if larger else max(sizes)]!r}?"


def _series_and_size(name: str) -> tuple[str, int]:
    """Split ``n1-standard-8`` or ``a2-highgpu-8g`` before its size; 0 without one."""
    series, _, size = name.rpartition("-")
    digits = size.removesuffix("g")
    return series, int(digits) if digits.isdecimal() else 0


def _size_in(series: str, name: str) -> int:
    of_name, size = _series_and_size(name)
    return size if of_name == series else 0
