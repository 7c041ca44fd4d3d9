"""Which machines and accelerators Vertex AI trains on, where, and what it did before.

The data is in ``catalogue.json``, which says where it comes from and of when it is. Accelerators
have the names of Google's AcceleratorType; TPUs without one there are TPU_V6E and TPU_7X, and a
TPU_V2 or TPU_V3 of more than 8 cores is a TPU_V2_POD or TPU_V3_POD to a region. GB are Compute
Engine's, which are GiB.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.job.model import Machine

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_NAME = "distlaunch.catalogue.yaml"
"""The file in a project's folder that adds to the catalogue."""

TRAINING, ELSEWHERE = "training", "elsewhere"
_POD_CORES = 8  # of a TPU_V2 or TPU_V3, beyond which it is a pod
_PODS = {"TPU_V2": "TPU_V2_POD", "TPU_V3": "TPU_V3_POD"}


@dataclass(frozen=True, slots=True)
class MachineKind:
    """A machine type.

    Parameters
    ----------
    family
        What its price and its quota are called by, as ``N1``, ``A3`` or ``A3_MEGA``.
    cpus, memory_gb
        Virtual CPUs and memory of one machine, None where they are not known.
    accelerators
        Those that it takes, each with the counts that it takes of them.
    needs_accelerator
        Whether it does not come without.
    topologies
        The shapes that its TPUs come in, where a job says them by their shape, as ``2x4``.
    tpu
        The kind of these TPUs.
    architecture
        What its images are for, as images call it: ``amd64`` or ``arm64``.
    rdma
        Whether its GPUs communicate by RDMA, see `has_rdma`; only the bundled file has this key.
    """

    family: str
    cpus: int | None = None
    memory_gb: float | None = None
    accelerators: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    needs_accelerator: bool = False
    topologies: tuple[str, ...] = ()
    tpu: str | None = None
    architecture: str = "amd64"
    rdma: bool = False

    @property
    def has_tpu(self) -> bool:
        """Whether it is a machine with TPUs."""
        by_shape = self.tpu is not None or bool(self.topologies)
        return by_shape or any(name.startswith("TPU_") for name in self.accelerators)

    def takes(self, accelerator: str, count: int) -> bool:
        """Return whether it takes so many of an accelerator."""
        return count in self.accelerators.get(accelerator, ())


@dataclass(frozen=True, slots=True)
class RegionKind:
    """A region.

    Parameters
    ----------
    training
        The accelerators that are offered for training there, None where nothing is known of it.
    elsewhere
        Those that are there, but not for training.
    """

    training: frozenset[str] | None = None
    elsewhere: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RetiredAccelerator:
    """An accelerator that Google withdraws.

    Parameters
    ----------
    since
        The first day without it.
    instead
        What to take instead, the likest first.
    """

    since: dt.date
    instead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RetiredMachine:
    """A name of a machine that is none any more.

    Parameters
    ----------
    since
        The first day without it.
    was
        What it stood for, in names of today; its accelerator may be retired, too.
    why
        Why that is not the very machine that it stood for, if it is not.
    """

    since: dt.date
    was: Machine
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What there is to train on.

    Parameters
    ----------
    source, date
        Where this is from, and of when it is: ``2026-06``.
    machines, regions
        By name.
    flex_start
        The accelerators that can be had by FLEX_START.
    retired_accelerators, retired_machines
        What there is no more, or soon will not be.
    """

    source: str
    date: str
    machines: Mapping[str, MachineKind]
    regions: Mapping[str, RegionKind]
    flex_start: tuple[str, ...]
    retired_accelerators: Mapping[str, RetiredAccelerator]
    retired_machines: Mapping[str, RetiredMachine]

    @property
    def accelerators(self) -> frozenset[str]:
        """All accelerators of which anything is said."""
        on_machines = {name for kind in self.machines.values() for name in kind.accelerators}
        tpus = {kind.tpu for kind in self.machines.values() if kind.tpu}
        there = {name for kind in self.regions.values() for name in _there(kind)}
        return frozenset(on_machines | tpus | there | self.retired_accelerators.keys())

    def offers(self, region: str, accelerator: str) -> bool | None:
        """Return whether a region offers an accelerator for training, None where it's not known.

        Of an accelerator that no region is said to have it is not known of any.
        """
        kind = self.regions.get(region)
        if kind is None or kind.training is None:
            return None
        is_there = any(accelerator in _there(each) for each in self.regions.values())
        return accelerator in kind.training if is_there else None

    def regions_with(self, accelerator: str) -> tuple[str, ...]:
        """Return the regions that are known to offer an accelerator for training."""
        return tuple(name for name in self.regions if self.offers(name, accelerator))

    def machines_with(self, accelerator: str, count: int) -> tuple[str, ...]:
        """Return the machines that take so many of an accelerator, the smallest first."""
        fitting = [name for name, kind in self.machines.items() if kind.takes(accelerator, count)]
        return tuple(sorted(fitting, key=self._size))

    def is_retired(self, name: str, today: dt.date) -> bool:
        """Return whether a machine or an accelerator is withdrawn by a day."""
        gone = self.retired_accelerators.get(name) or self.retired_machines.get(name)
        return gone is not None and gone.since <= today

    def _size(self, machine: str) -> tuple[float, float]:
        kind = self.machines[machine]
        return kind.cpus or math.inf, kind.memory_gb or math.inf


def offered_as(kind: MachineKind | None, accelerator: str | None, count: int) -> str | None:
    """Return the name by which a region offers what a machine has, None for a machine without.

    Parameters
    ----------
    kind
        The machine, None if it is unknown.
    accelerator, count
        What the job says beside it.
    """
    if accelerator is None:
        return kind.tpu if kind else None
    return _PODS.get(accelerator, accelerator) if count > _POD_CORES else accelerator


def has_rdma(machine_type: str) -> bool:
    """Return whether a machine's GPUs communicate by RDMA.

    On these machines a training program has to source ``set_nccl_env.sh`` first:
    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/configure-compute

    Parameters
    ----------
    machine_type
        Such as ``a4-highgpu-8g``; False for an unknown machine.
    """
    kind = bundled().machines.get(machine_type)
    return kind is not None and kind.rdma


def chips(topology: str) -> int:
    """Return how many chips a TPU of a shape has: ``2x4`` has 8, and what is no shape none."""
    sides = topology.split("x")
    return math.prod(map(int, sides)) if all(side.isdecimal() for side in sides) else 0


def load(file: Path | None) -> Catalogue:
    """Return the catalogue.

    Parameters
    ----------
    file
        A file of the user's own that adds to it, None without.

    Raises
    ------
    DistlaunchError
        If that file is broken, with its line and column.
    """
    if file is None:
        return bundled()
    from distlaunch.job.catalogue_file import laid_over, read

    return _catalogue(laid_over(_data(), read(file)))


@cache
def bundled() -> Catalogue:
    """Return the catalogue that distlaunch comes with."""
    return _catalogue(_data())


def _data() -> dict[str, Any]:
    text = Path(__file__).with_name("catalogue.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def _catalogue(data: Mapping[str, Any]) -> Catalogue:
    retired = data["retired"]
    return Catalogue(
        source=data["source"],
        date=data["date"],
        machines={name: _machine(name, said) for name, said in data["machines"].items()},
        regions={name: _region(said) for name, said in data["regions"].items()},
        flex_start=tuple(data["flex_start"]),
        retired_accelerators={
            name: _retired_accelerator(said) for name, said in retired["accelerators"].items()
        },
        retired_machines={
            name: _retired_machine(said) for name, said in retired["machines"].items()
        },
    )


def _machine(name: str, said: Mapping[str, Any]) -> MachineKind:
    accelerators = said.get("accelerators", {})
    return MachineKind(
        family=said.get("family", name.partition("-")[0].upper()),
        cpus=said.get("cpus"),
        memory_gb=said.get("memory_gb"),
        accelerators={kind: tuple(counts) for kind, counts in accelerators.items()},
        needs_accelerator=bool(accelerators) and said.get("needs_accelerator", False),
        topologies=tuple(said.get("topologies", ())),
        tpu=said.get("tpu"),
        architecture=said.get("architecture", "amd64"),
        rdma=said.get("rdma", False),
    )


def _region(said: Mapping[str, str]) -> RegionKind:
    if not said:
        return RegionKind()
    return RegionKind(
        frozenset(name for name, use in said.items() if use == TRAINING),
        frozenset(name for name, use in said.items() if use == ELSEWHERE),
    )


def _retired_accelerator(said: Mapping[str, Any]) -> RetiredAccelerator:
    return RetiredAccelerator(dt.date.fromisoformat(said["since"]), tuple(said.get("instead", ())))


def _retired_machine(said: Mapping[str, Any]) -> RetiredMachine:
    accelerator = said.get("accelerator")
    was = Machine(said["machine"], accelerator, said.get("count", 1) if accelerator else 0)
    return RetiredMachine(dt.date.fromisoformat(said["since"]), was, said.get("why"))


def _there(kind: RegionKind) -> frozenset[str]:
    return (kind.training or frozenset()) | kind.elsewhere
