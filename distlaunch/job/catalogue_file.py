"""The schema of ``distlaunch.catalogue.yaml``."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

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
)
from distlaunch.job.validation import validate
from distlaunch.job.yaml_document import job_file_error, read_document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_TOPOLOGY = re.compile(r"[1-9][0-9]*(x[1-9][0-9]*){1,2}", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def _one_of(**values: Any) -> Callable[[Any], Any]:
    def parse(text: Any) -> Any:
        if not isinstance(text, str) or text not in values:
            raise expected_error(" or ".join(values))
        return values[text]

    return parse


def _parse_day(text: Any) -> str:
    try:
        if isinstance(text, str) and _DAY.fullmatch(text):
            return dt.date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    raise expected_error("a day such as 2026-09-15")


def _parse_topology(text: Any) -> str:
    if not isinstance(text, str) or not _TOPOLOGY.fullmatch(text):
        raise expected_error("a topology such as 2x4")
    return text


_T = TypeVar("_T")
_OrEmpty = Annotated[_T, BeforeValidator(lambda value: {} if value is None else value)]
_Boolean = Annotated[bool, BeforeValidator(_one_of(true=True, false=False))]
_Architecture = Annotated[str, BeforeValidator(_one_of(amd64="amd64", arm64="arm64"))]
_Use = Annotated[str, BeforeValidator(_one_of(training="training", elsewhere="elsewhere"))]
_Day = Annotated[str, BeforeValidator(_parse_day)]
_Topology = Annotated[str, BeforeValidator(_parse_topology)]
_Counts = Annotated[list[PositiveInt], Field(min_length=1)]


class _MachineSection(Section):
    """One of ``machines``."""

    family: NonEmptyLine | None = None
    cpus: PositiveInt | None = None
    memory_gb: Number | None = None
    accelerators: dict[AcceleratorName, _Counts | None] | None = None
    needs_accelerator: _Boolean | None = None
    topologies: list[_Topology] | None = None
    tpu: AcceleratorName | None = None
    architecture: _Architecture | None = None


class _RetiredAcceleratorSection(Section):
    """One of ``retired.accelerators``."""

    since: _Day
    instead: tuple[AcceleratorName, ...] = ()


class _RetiredMachineSection(Section):
    """One of ``retired.machines``."""

    since: _Day
    machine: MachineTypeName
    accelerator: AcceleratorName | None = None
    count: PositiveInt | None = None
    why: NonEmptyLine | None = None


class _RetiredSection(Section):
    """``retired``."""

    accelerators: _OrEmpty[dict[AcceleratorName, _RetiredAcceleratorSection | None]] = Field(
        default_factory=dict
    )
    machines: _OrEmpty[dict[MachineTypeName, _RetiredMachineSection | None]] = Field(
        default_factory=dict
    )


class _CatalogueSection(Section):
    """The whole file."""

    machines: _OrEmpty[dict[MachineTypeName, _MachineSection | None]] = Field(default_factory=dict)
    regions: _OrEmpty[dict[RegionName, dict[AcceleratorName, _Use | None] | None]] = Field(
        default_factory=dict
    )
    flex_start: Annotated[tuple[AcceleratorName, ...], Field(min_length=1)] = ("NVIDIA_L4",)
    retired: _OrEmpty[_RetiredSection] = _RetiredSection()


def read_catalogue_file(path: Path) -> dict[str, Any]:
    """Read a user's catalogue file as plain data in the shape of ``catalogue.json``."""
    section, problems = validate(read_document(path), _CatalogueSection)
    if section is None or problems:
        raise job_file_error(path, problems)
    return section.model_dump(exclude_unset=True)
