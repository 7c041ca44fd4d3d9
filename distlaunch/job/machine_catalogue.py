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
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from distlaunch.errors import did_you_mean
from distlaunch.job.model import Machine
from distlaunch.job.schema import Section
from distlaunch.job.validation import validate
from distlaunch.job.value_types import (
    AcceleratorName,
    MachineTypeName,
    NonEmptyLine,
    Number,
    PositiveInt,
    RegionName,
    expected_error,
    one_of,
    text,
)
from distlaunch.job.yaml_document import Document, deep_merge, job_file_error, read_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from distlaunch.job.model import Cluster

FILE_NAME = "distlaunch.catalogue.yaml"
"""The file in a project folder that extends the catalogue."""

_POD_CORES = 8  # of a TPU_V2 or TPU_V3; one with more is a pod
_PODS = {"TPU_V2": "TPU_V2_POD", "TPU_V3": "TPU_V3_POD"}
_GBPS_PER_VCPU = 2  # of N1 machines with GPUs
_BUNDLED = Path(__file__).with_name("catalogue.json")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def _parse_day(value: Any) -> dt.date:
    try:
        if isinstance(value, str) and _DAY.fullmatch(value):
            return dt.date.fromisoformat(value)
    except ValueError:
        pass
    raise expected_error("a day such as 2026-09-15")


_Day = Annotated[dt.date, BeforeValidator(_parse_day)]
_Use = Annotated[str, one_of("training", "elsewhere")]
_Topology = Annotated[str, text("a topology such as 2x4", r"[1-9][0-9]*(x[1-9][0-9]*){1,2}")]
_Counts = Annotated[list[PositiveInt], Field(min_length=1)]


class MachineType(Section):
    """A machine type; what is unknown is None.

    `accelerators` are the counts that it takes of each, `topologies` those of its `tpu`, such as
    ``2x4``. With `rdma`, its GPUs communicate by RDMA, and a training program must source
    ``set_nccl_env.sh`` before it starts:
    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/configure-compute
    `gpu_egress_gbps` are limits by accelerator and number, which replace `egress_gbps`. The first
    of `boot_disks` is the default.
    """

    family: NonEmptyLine = Field(default="", validate_default=False)  # empty for that in its name
    cpus: PositiveInt | None = None
    memory_gb: Number | None = None
    accelerators: dict[AcceleratorName, _Counts] = Field(default_factory=dict)
    needs_accelerator: bool = False
    topologies: tuple[_Topology, ...] = ()
    tpu: AcceleratorName | None = None
    architecture: Annotated[str, one_of("amd64", "arm64")] = "amd64"
    rdma: bool = False
    egress_gbps: PositiveInt | None = None
    gpu_egress_gbps: dict[AcceleratorName, dict[PositiveInt, PositiveInt]] = Field(
        default_factory=dict
    )
    boot_disks: Annotated[tuple[NonEmptyLine, ...], Field(min_length=1)] = (
        *("pd-ssd", "pd-standard", "hyperdisk-balanced"),
    )
    cpu_quota: NonEmptyLine | None = None  # None for that of its family's name
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
        limit = by_count.get(count)
        return limit and min(_GBPS_PER_VCPU * (self.cpus or 0), limit)


class RetiredAccelerator(Section):
    """An accelerator that Google withdraws: from which day, and replacements, the closest first."""

    since: _Day
    instead: tuple[AcceleratorName, ...] = ()


class RetiredMachine(Section):
    """A former name of a machine, from which day, and the machine in current names.

    `why` it is not the same machine, if it is not.
    """

    since: _Day
    machine: MachineTypeName
    accelerator: AcceleratorName | None = None  # which may be retired, too
    count: PositiveInt = 1
    why: NonEmptyLine | None = None

    @property
    def replacement(self) -> Machine:
        """The machine in current names."""
        return Machine(self.machine, self.accelerator, self.count if self.accelerator else 0)


class Retired(Section):
    """Names that Google has withdrawn, or is going to."""

    accelerators: dict[AcceleratorName, RetiredAccelerator]
    machines: dict[MachineTypeName, RetiredMachine]


class Catalogue(Section):
    """Machines, regions and retired names; `flex_start` are the accelerators for FLEX_START.

    `regions` are the uses of their accelerators, training or elsewhere, empty if unknown.
    `families` are what the machines of a family have in common; `compute_capability` is NVIDIA's
    number by accelerator, and `accelerator_quotas` are the quotas that do not have its name.
    """

    source: NonEmptyLine
    date: NonEmptyLine
    families: dict[NonEmptyLine, MachineType]
    machines: dict[MachineTypeName, MachineType]
    regions: dict[RegionName, dict[AcceleratorName, _Use]]
    flex_start: Annotated[tuple[AcceleratorName, ...], Field(min_length=1)]
    compute_capability: dict[AcceleratorName, float]
    accelerator_quotas: dict[AcceleratorName, NonEmptyLine]
    retired: Retired

    def machine(self, name: str) -> MachineType:
        """Return a machine type; of an unknown one, what the family in its name has in common."""
        return self.machines.get(name) or _of_family(name, MachineType(), self.families)

    @property
    def accelerators(self) -> frozenset[str]:
        """All accelerators that the catalogue mentions."""
        on_machines = {name for kind in self.machines.values() for name in kind.accelerators}
        tpus = {kind.tpu for kind in self.machines.values() if kind.tpu}
        in_regions = {name for uses in self.regions.values() for name in uses}
        return frozenset(on_machines | tpus | in_regions | self.retired.accelerators.keys())

    def may_run(self, cluster: Cluster, region: str) -> bool:
        """Whether no accelerator of a cluster is known to be missing in a region."""
        names = [pool.machine.accelerator for pool in cluster.pools if pool]
        return all(self.offers(region, name) is not False for name in names if name)

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
        retired = self.retired.accelerators.get(name) or self.retired.machines.get(name)
        return retired is not None and retired.since <= today

    def replacements(self, accelerator: str, count: int, machine_type: str) -> tuple[str, ...]:
        """Return the replacements of a retired accelerator that a machine takes, closest first."""
        names = self.retired.accelerators[accelerator].instead
        machine = self.machine(machine_type)
        fitting = tuple(name for name in names if machine.takes(name, count))
        return fitting or names

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
    return _read(read_document(file), file) if file else bundled()


def of_project(folder: Path, chosen: Path | None = None) -> Catalogue:
    """Return the catalogue with the user's file: the chosen one, else the project's, if any."""
    own = folder / FILE_NAME
    return load(chosen or (own if own.exists() else None))


@cache
def bundled() -> Catalogue:
    """Return the catalogue of this release."""
    return _read(Document("{}"), _BUNDLED)


def _read(document: Document, path: Path) -> Catalogue:
    """Merge a user's document into the bundled data; its problems are a JobFileError."""
    own = _without_empty(document.data)
    if isinstance(own.get("retired"), dict):
        own["retired"] = _without_empty(own["retired"])
    document.data = deep_merge(json.loads(_BUNDLED.read_bytes()), own, drop_none=True)
    catalogue, problems = validate(document, Catalogue)
    if catalogue is None or problems:
        raise job_file_error(path, problems)
    machines = {
        name: _of_family(name, kind, catalogue.families)
        for name, kind in catalogue.machines.items()
    }
    return catalogue.model_copy(update={"machines": machines})


def _without_empty(section: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out sections that are written without content."""
    return {key: value for key, value in section.items() if value is not None}


def _of_family(name: str, kind: MachineType, families: Mapping[str, MachineType]) -> MachineType:
    """Return a machine type with what it does not set of its family's."""
    fields: dict[str, Any] = {"family": kind.family or name.partition("-")[0].upper()}
    common = families.get(fields["family"], kind)
    fields |= {key: getattr(common, key) for key in common.model_fields_set}
    fields |= {key: getattr(kind, key) for key in kind.model_fields_set}
    needs_accelerator = bool(fields.get("accelerators")) and fields.get("needs_accelerator", False)
    return MachineType.model_construct(**fields | {"needs_accelerator": needs_accelerator})


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
    series, size = _series_and_size(name)
    sizes = ((*_series_and_size(each), each) for each in known)
    by_size = sorted((number, each) for of, number, each in sizes if of == series and number)
    if not size or not by_size:
        return did_you_mean(name, list(known))
    larger = [each for number, each in by_size if number >= size]
    return f"; did you mean {(larger or [by_size[-1][1]])[0]!r}?"


def _series_and_size(name: str) -> tuple[str, int]:
    """Split ``n1-standard-8`` or ``a2-highgpu-8g`` before its size; 0 without one."""
    series, _, size = name.rpartition("-")
    digits = size.removesuffix("g")
    return series, int(digits) if digits.isdecimal() else 0
