"""What a job could take in place of machines and accelerators that it cannot have."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlaunch.job.model import Machine

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from distlaunch.job.machine_catalogue import Catalogue

_MOST = 2  # alternatives that are told
_MAINLANDS = {"northamerica": "us"}
_NEXT_TO = {"southamerica": "us", "africa": "europe", "me": "europe"}


@dataclass(frozen=True, slots=True)
class Market:
    """What there is to have in a region on a day.

    Parameters
    ----------
    region
        Its name, or nothing where none is said.
    """

    catalogue: Catalogue
    region: str
    today: date

    def sells(self, accelerator: str) -> bool:
        """Whether an accelerator can be had, as far as is known."""
        gone = self.catalogue.is_retired(accelerator, self.today)
        return not gone and self.catalogue.offers(self.region, accelerator) is not False

    def accelerator_on(self, machine: str, count: int = 1) -> Machine | None:
        """Return a machine with an accelerator that it takes, and with the count nearest to one."""
        kind = self.catalogue.machines[machine]
        names = self._best(kind.accelerators)
        if not names:
            return None
        return Machine(machine, names[0], nearest(count, kind.accelerators[names[0]]))

    def machine_with(self, accelerator: str, count: int, near: str) -> Machine | None:
        """Return the machine with an accelerator that is the likest to another machine.

        Parameters
        ----------
        accelerator, count
            What it is to have; where no machine has so many of it, the nearest count.
        near
            The other machine's type.
        """
        kinds = self.catalogue.machines
        counts = {
            each for kind in kinds.values() for each in kind.accelerators.get(accelerator, ())
        }
        if not counts:
            built_in = [name for name, kind in kinds.items() if kind.tpu == accelerator]
            return Machine(self._likest(built_in, near)) if built_in else None
        count = nearest(count, counts)
        names = self.catalogue.machines_with(accelerator, count)
        return Machine(self._likest(names, near), accelerator, count)

    def with_count(self, wanted: Machine) -> Machine:
        """Return a machine with the nearest count that it takes of its accelerator."""
        counts = self.catalogue.machines[wanted.type].accelerators[wanted.accelerator or ""]
        return replace(wanted, accelerator_count=nearest(wanted.accelerator_count, counts))

    def in_place_of(self, wanted: Machine, others: Iterable[str]) -> tuple[Machine, ...]:
        """Return what has others of the accelerators in place of a machine's, the best first."""
        found = [
            made
            for name in self._best(others)
            if (made := self._with_another(wanted, name)) is not None
        ]
        exact = [each for each in found if each.accelerator_count == wanted.accelerator_count]
        return tuple(exact or found)[:_MOST]

    def regions_with(self, accelerator: str, others: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the regions that offer an accelerator, those of the same part of the world first.

        Parameters
        ----------
        accelerator
            Its name.
        others
            What the job has, too: where some regions offer all of it, only these.
        """
        regions = self.catalogue.regions_with(accelerator)
        of_all = [name for name in regions if all(self.catalogue.offers(name, o) for o in others)]
        return tuple(sorted(of_all or regions, key=self._distance))

    def _distance(self, region: str) -> tuple[bool, bool]:
        is_far = continent(region) != continent(self.region)
        return is_far, region.partition("-")[0] != self.region.partition("-")[0]

    def _with_another(self, wanted: Machine, accelerator: str) -> Machine | None:
        kind = self.catalogue.machines.get(wanted.type)
        if kind and kind.takes(accelerator, wanted.accelerator_count):
            return Machine(wanted.type, accelerator, wanted.accelerator_count)
        return self.machine_with(accelerator, wanted.accelerator_count, wanted.type)

    def _likest(self, names: Iterable[str], near: str) -> str:
        return min(names, key=lambda name: self._unlikeness(name, near))

    def _unlikeness(self, name: str, near: str) -> tuple[float, bool, float]:
        """Return how far a machine is from another: in virtual CPUs, then in kind and size."""
        cpus, own = (self._cpus(each) for each in (name, near))
        distance = abs(math.log(cpus / own)) if cpus and own else 0.0
        kind, own_kind = (each.split("-")[1:2] for each in (name, near))
        return distance, kind != own_kind, cpus or math.inf

    def _cpus(self, name: str) -> int | None:
        kind = self.catalogue.machines.get(name)
        return kind.cpus if kind else None

    def _best(self, accelerators: Iterable[str]) -> tuple[str, ...]:
        """Return those that can be had here, or else those that can be had somewhere."""
        there = [each for each in accelerators if not self.catalogue.is_retired(each, self.today)]
        return tuple(filter(self.sells, there)) or tuple(there)


def nearest(count: int, counts: Iterable[int]) -> int:
    """Return the number that is nearest to another, the larger of two."""
    return min(counts, key=lambda each: (abs(each - count), -each))


def said(wanted: Machine, instead: Machine) -> str:
    """Return what a job file says in place of a machine and its accelerators.

    Every form of it is one thing to write: ``machine: M``, ``count: N``, ``accelerator: {…}``,
    ``no accelerator`` or ``machine: M with …``.
    """
    accelerator = (
        f"accelerator: {{type: {instead.accelerator}, count: {instead.accelerator_count}}}"
    )
    is_same_kind = wanted.accelerator == instead.accelerator
    if wanted.type == instead.type:
        if instead.accelerator is None:
            return "no accelerator"
        return f"count: {instead.accelerator_count}" if is_same_kind else accelerator
    if is_same_kind and wanted.accelerator_count == instead.accelerator_count:
        return f"machine: {instead.type}"
    return (
        f"machine: {instead.type} with {accelerator if instead.accelerator else 'no accelerator'}"
    )


def either(wanted: Machine, others: Iterable[Machine | None]) -> str:
    """Return what to write, one of several things: ``write count: 2, or machine: …``."""
    texts = dict.fromkeys(said(wanted, each) for each in others if each is not None)
    return f"write {', or '.join(texts)}" if texts else "choose another machine"


def short(names: Iterable[str]) -> str:
    """Return names as a person lists them: ``a, b or c``."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def continent(region: str) -> str:
    """Return the part of the world that a region is in, or next to."""
    name = mainland(region)
    return _NEXT_TO.get(name, name)


def mainland(location: str) -> str:
    """Return the part of the world that a region is in, or that a multi-region is."""
    name = location.partition("-")[0]
    return _MAINLANDS.get(name, name)
