"""Machines, accelerators and regions to use in place of unavailable ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.job.model import Machine

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from distlaunch.job.machine_catalogue import Catalogue

_MOST_ALTERNATIVES = 2
_MAINLANDS = {"northamerica": "us"}
_NEXT_TO = {"southamerica": "us", "africa": "europe", "me": "europe"}


@dataclass(frozen=True, slots=True)
class Availability:
    """What the catalogue offers in a region (empty if the job has none) on a day."""

    catalogue: Catalogue
    region: str
    today: date

    def accelerator_on(self, machine: str, count: int) -> Machine | None:
        """Return a machine with an accelerator that it takes, in the nearest number."""
        counts = self.catalogue.machines[machine].accelerators
        names = self._available(counts)
        return Machine(machine, names[0], nearest(count, counts[names[0]])) if names else None

    def machine_with(self, wanted: Machine, accelerator: str) -> Machine | None:
        """Return the smallest machine with an accelerator and at least as many CPUs as another.

        It has as many of the accelerator as the other has accelerators, or the nearest number.
        """
        kinds = self.catalogue.machines
        counts = {n for kind in kinds.values() for n in kind.accelerators.get(accelerator, ())}
        if not counts:
            built_in = [name for name, kind in kinds.items() if kind.tpu == accelerator]
            return Machine(built_in[0]) if built_in else None
        count = nearest(wanted.accelerator_count, counts)
        names = self.catalogue.machines_with(accelerator, count)
        wanted_kind = kinds.get(wanted.type)
        wanted_cpus = (wanted_kind.cpus if wanted_kind else None) or 0
        large = [name for name in names if (kinds[name].cpus or math.inf) >= wanted_cpus]
        return Machine((large or names[-1:])[0], accelerator, count)

    def replacements(self, wanted: Machine, accelerators: Iterable[str]) -> tuple[Machine, ...]:
        """Return machines with some other accelerators, those with the same number if any."""
        kind, count = self.catalogue.machines.get(wanted.type), wanted.accelerator_count
        machines = [
            Machine(wanted.type, name, count)
            if kind and kind.takes(name, count)
            else self.machine_with(wanted, name)
            for name in self._available(accelerators)
        ]
        known = [machine for machine in machines if machine]
        same = [machine for machine in known if machine.accelerator_count == count]
        return tuple(same or known)[:_MOST_ALTERNATIVES]

    def regions_with(self, accelerator: str, others: Iterable[str]) -> list[str]:
        """Return the regions with an accelerator, and with all others if any has; nearest first."""
        regions = self.catalogue.regions_with(accelerator)
        of_all = [name for name in regions if all(self.catalogue.offers(name, o) for o in others)]
        return sorted(of_all or regions, key=self._distance)

    def _available(self, accelerators: Iterable[str]) -> list[str]:
        """Return those that are offered in this region, or else in any."""
        current = [name for name in accelerators if not self.catalogue.is_retired(name, self.today)]
        here = [name for name in current if self.catalogue.offers(self.region, name) is not False]
        return here or current

    def _distance(self, region: str) -> tuple[bool, bool]:
        is_far = continent(region) != continent(self.region)
        return is_far, region.partition("-")[0] != self.region.partition("-")[0]


def nearest(count: int, counts: Iterable[int]) -> int:
    """Return the number that is nearest to another, the larger of two."""
    return min(counts, key=lambda number: (abs(number - count), -number))


def change_to(wanted: Machine, machines: Iterable[Machine | None]) -> str:
    """Return the remedy to use one of several machines: ``write count: 2, or machine: …``."""
    changes = dict.fromkeys(_change(wanted, machine) for machine in machines if machine)
    return f"write {', or '.join(changes)}" if changes else "choose another machine"


def _change(wanted: Machine, machine: Machine) -> str:
    """Return the keys to change from one machine to another."""
    name, count = machine.accelerator, machine.accelerator_count
    accelerator = f"accelerator: {{type: {name}, count: {count}}}" if name else "no accelerator"
    if wanted.type == machine.type:
        return f"count: {count}" if name and name == wanted.accelerator else accelerator
    if (wanted.accelerator, wanted.accelerator_count) == (name, count):
        return f"machine: {machine.type}"
    return f"machine: {machine.type} with {accelerator}"


def continent(region: str) -> str:
    """Return the part of the world that a region is in, or next to."""
    name = mainland(region)
    return _NEXT_TO.get(name, name)


def mainland(location: str) -> str:
    """Return the part of the world of a region or a multi-region."""
    name = location.partition("-")[0]
    return _MAINLANDS.get(name, name)
