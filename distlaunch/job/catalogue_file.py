"""A catalogue file of the user's own: what it may hold, and how it is laid over the bundled one."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from distlaunch.job.schema import (
    EXPECTED,
    AcceleratorType,
    AtLeastOne,
    Filled,
    MachineType,
    Number,
    Region,
    Section,
)
from distlaunch.job.text_file import read_text
from distlaunch.job.validation import refusal, validate
from distlaunch.job.yaml_document import Document, YamlProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_TOPOLOGY = re.compile(r"[1-9][0-9]*(x[1-9][0-9]*){1,2}", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def _refusal(expected: str) -> PydanticCustomError:
    return PydanticCustomError(EXPECTED, "{expected}", {"expected": expected, "hint": ""})


def _one_of(**values: Any) -> Callable[[Any], Any]:
    def read(text: Any) -> Any:
        if not isinstance(text, str) or text not in values:
            raise _refusal(" or ".join(values))
        return values[text]

    return read


def _day(text: Any) -> str:
    try:
        if isinstance(text, str) and _DAY.fullmatch(text):
            return dt.date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    raise _refusal("a day, as 2026-09-15")


def _topology(text: Any) -> str:
    if not isinstance(text, str) or not _TOPOLOGY.fullmatch(text):
        raise _refusal("a topology, as 2x4")
    return text


_T = TypeVar("_T")
_Several = Annotated[_T, BeforeValidator(lambda said: {} if said is None else said)]
_YesOrNo = Annotated[bool, BeforeValidator(_one_of(true=True, false=False))]
_Architecture = Annotated[str, BeforeValidator(_one_of(amd64="amd64", arm64="arm64"))]
_Use = Annotated[str, BeforeValidator(_one_of(training="training", elsewhere="elsewhere"))]
_Day = Annotated[str, BeforeValidator(_day)]
_Topology = Annotated[str, BeforeValidator(_topology)]


class _MachineSection(Section):
    """One of ``machines``."""

    family: Filled | None = None
    cpus: AtLeastOne | None = None
    memory_gb: Number | None = None
    accelerators: (
        dict[AcceleratorType, Annotated[list[AtLeastOne], Field(min_length=1)] | None] | None
    ) = None
    needs_accelerator: _YesOrNo | None = None
    topologies: list[_Topology] | None = None
    tpu: AcceleratorType | None = None
    architecture: _Architecture | None = None


class _RetiredAcceleratorSection(Section):
    """One of ``retired.accelerators``."""

    since: _Day
    instead: tuple[AcceleratorType, ...] = ()


class _RetiredMachineSection(Section):
    """One of ``retired.machines``."""

    since: _Day
    machine: MachineType
    accelerator: AcceleratorType | None = None
    count: AtLeastOne | None = None
    why: Filled | None = None


class _RetiredSection(Section):
    """``retired``."""

    accelerators: _Several[dict[AcceleratorType, _RetiredAcceleratorSection | None]] = Field(
        default_factory=dict
    )
    machines: _Several[dict[MachineType, _RetiredMachineSection | None]] = Field(
        default_factory=dict
    )


class _CatalogueSection(Section):
    """The whole file."""

    machines: _Several[dict[MachineType, _MachineSection | None]] = Field(default_factory=dict)
    regions: _Several[dict[Region, dict[AcceleratorType, _Use | None] | None]] = Field(
        default_factory=dict
    )
    flex_start: Annotated[tuple[AcceleratorType, ...], Field(min_length=1)] = ("NVIDIA_L4",)
    retired: _Several[_RetiredSection] = _RetiredSection()


def read(path: Path) -> dict[str, Any]:
    """Read a user's catalogue file as plain data.

    Parameters
    ----------
    path
        YAML in the shape of the bundled ``catalogue.json``; null takes away what stands there.

    Raises
    ------
    DistlaunchError
        If there is no such file, or with all its problems, each with line and column.
    """
    try:
        document = Document(read_text(path))
    except YamlProblem as problem:
        raise refusal(path, [problem]) from None
    section, problems = validate(document, _CatalogueSection)
    if section is None or problems:
        raise refusal(path, problems)
    return section.model_dump(exclude_unset=True)


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return data with other data over it: mappings key by key, None taking a key away."""
    made = dict(below)
    for key, said in above.items():
        if isinstance(said, dict):
            there = made.get(key)
            made[key] = laid_over(there if isinstance(there, dict) else {}, said)
        elif said is None:
            made.pop(key, None)
        else:
            made[key] = said
    return made
