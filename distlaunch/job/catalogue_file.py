"""The schema of ``distlaunch.catalogue.yaml``."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from distlaunch.job.schema import (
    AcceleratorName,
    MachineTypeName,
    NonEmptyLine,
    Number,
    PositiveInt,
    RegionName,
    Section,
    expected_error,
    one_of,
    or_default,
    text,
)
from distlaunch.job.validation import validate
from distlaunch.job.yaml_document import deep_merge, job_file_error, read_document

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def _parse_day(value: Any) -> str:
    try:
        if isinstance(value, str) and _DAY.fullmatch(value):
            return dt.date.fromisoformat(value).isoformat()
    except ValueError:
        pass
    raise expected_error("a day such as 2026-09-15")


_Architecture = Annotated[str, one_of("amd64", "arm64")]
_Use = Annotated[str, one_of("training", "elsewhere")]
_Day = Annotated[str, BeforeValidator(_parse_day)]
_Topology = Annotated[str, text("a topology such as 2x4", r"[1-9][0-9]*(x[1-9][0-9]*){1,2}")]
_Counts = Annotated[list[PositiveInt], Field(min_length=1)]
_Count = Annotated[str, text("a number of GPUs such as 8", r"[1-9][0-9]*")]


class _FamilySection(Section):
    """One of ``families``: what its machines have in common."""

    cpus: PositiveInt | None = None
    memory_gb: Number | None = None
    accelerators: dict[AcceleratorName, _Counts | None] | None = None
    needs_accelerator: bool | None = None
    topologies: list[_Topology] | None = None
    tpu: AcceleratorName | None = None
    architecture: _Architecture | None = None
    rdma: bool | None = None
    egress_gbps: PositiveInt | None = None
    gpu_egress_gbps: dict[AcceleratorName, dict[_Count, PositiveInt] | None] | None = None
    boot_disks: Annotated[list[NonEmptyLine], Field(min_length=1)] | None = None
    cpu_quota: NonEmptyLine | None = None
    price_includes_gpus: bool | None = None


class _MachineSection(_FamilySection):
    """One of ``machines``."""

    family: NonEmptyLine | None = None


class _RetiredAcceleratorSection(Section):
    """One of ``retired.accelerators``."""

    since: _Day
    instead: list[AcceleratorName] | None = None


class _RetiredMachineSection(Section):
    """One of ``retired.machines``."""

    since: _Day
    machine: MachineTypeName
    accelerator: AcceleratorName | None = None
    count: PositiveInt | None = None
    why: NonEmptyLine | None = None


_OR_EMPTY = or_default(dict)


class _RetiredSection(Section):
    """``retired``."""

    accelerators: Annotated[
        dict[AcceleratorName, _RetiredAcceleratorSection | None] | None, _OR_EMPTY
    ] = None
    machines: Annotated[dict[MachineTypeName, _RetiredMachineSection | None] | None, _OR_EMPTY] = (
        None
    )


class _CatalogueSection(Section):
    """The whole file."""

    families: Annotated[dict[NonEmptyLine, _FamilySection | None] | None, _OR_EMPTY] = None
    machines: Annotated[dict[MachineTypeName, _MachineSection | None] | None, _OR_EMPTY] = None
    regions: Annotated[
        dict[RegionName, dict[AcceleratorName, _Use | None] | None] | None, _OR_EMPTY
    ] = None
    flex_start: Annotated[tuple[AcceleratorName, ...], Field(min_length=1)] = ("NVIDIA_L4",)
    compute_capability: Annotated[dict[AcceleratorName, float | None] | None, _OR_EMPTY] = None
    accelerator_quotas: Annotated[dict[AcceleratorName, NonEmptyLine | None] | None, _OR_EMPTY] = (
        None
    )
    retired: Annotated[_RetiredSection | None, _OR_EMPTY] = None


def extend_catalogue(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the data of ``catalogue.json`` with a user's file merged into it."""
    section, problems = validate(read_document(path), _CatalogueSection)
    if section is None or problems:
        raise job_file_error(path, problems)
    return deep_merge(data, section.model_dump(exclude_unset=True), drop_none=True)
