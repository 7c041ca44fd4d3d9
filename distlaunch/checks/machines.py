"""Machines, accelerators and regions of a job against the catalogue, and what to use instead.

A contradiction to the catalogue is an error; a name that it does not have is a warning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.errors import did_you_mean
from distlaunch.job.machine_catalogue import (
    FILE_NAME,
    chips,
    offered_as,
    suggest_accelerator,
    suggest_machine,
)
from distlaunch.job.model import Machine
from distlaunch.job.vertex.view import machine_of
from distlaunch.text import join_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import date

    from distlaunch.checks.problem import Problem
    from distlaunch.job.machine_catalogue import Catalogue, MachineType
    from distlaunch.job.vertex.view import JobRequest, PoolRequest

_MOST_ALTERNATIVES = 2
_MAINLANDS = {"northamerica": "us"}
_NEXT_TO = {"southamerica": "us", "africa": "europe", "me": "europe"}
_NOT_IN_CATALOGUE = {"TPU_V4_POD"}  # of Google's AcceleratorType


def problems(request: JobRequest, catalogue: Catalogue, today: date) -> Iterator[Problem]:
    """Yield the problems of a job's machines, accelerators and region."""
    available = Availability(catalogue, request.region, today)
    for pool in request.pools:
        yield from _machine_problems(pool, available)
        yield from _accelerator_problems(pool, available)
        yield from _architecture_problems(pool, catalogue)
    yield from _region_problems(request, available)
    for pool in request.pools:
        yield from _tpu_problems(pool, request, catalogue)
    if request.strategy == "FLEX_START":
        yield from _flex_start_problems(request, available)


def _machine_problems(pool: PoolRequest, available: Availability) -> Iterator[Problem]:
    catalogue, location, name = available.catalogue, pool.key("machine"), pool.machine
    if catalogue.is_retired(name, available.today):
        yield _retired_machine(pool, available)
    elif not name:
        remedy = "set one, e.g. n1-standard-8"
        yield error("machine-unknown", location, "machine type missing", remedy)
    elif name not in catalogue.machines and name not in catalogue.retired.machines:
        hint = suggest_machine(name, catalogue.machines)
        remedy = _add_to_catalogue(hint, _catalogue_entry(pool))
        yield warning("machine-unknown", location, _unknown(name, catalogue), remedy)


def _retired_machine(pool: PoolRequest, available: Availability) -> Problem:
    catalogue = available.catalogue
    retired = catalogue.retired.machines[pool.machine]
    machine = retired.replacement
    machines: tuple[Machine, ...] = (machine,)
    accelerator = machine.accelerator
    if accelerator and catalogue.is_retired(accelerator, available.today):
        others = catalogue.retired.accelerators[accelerator].instead
        machines = available.replacements(machine, others)
    why = f": {retired.why}" if retired.why else ""
    message = f"machine name {pool.machine} was withdrawn on {retired.since}{why}"
    remedy = change_to(Machine(pool.machine), machines)
    return error("machine-retired", pool.key("machine"), message, remedy)


def _accelerator_problems(pool: PoolRequest, available: Availability) -> Iterator[Problem]:
    """Yield the problems of an accelerator, and if there is no error, of its machine with it."""
    catalogue, name = available.catalogue, pool.accelerator
    location = pool.key("accelerator.type")
    if name is not None and name not in catalogue.accelerators:
        hint = suggest_accelerator(name, catalogue.accelerators | _NOT_IN_CATALOGUE)
        remedy = _add_to_catalogue(hint, _catalogue_entry(pool))
        yield warning("accelerator-unknown", location, _unknown(name, catalogue), remedy)
        return
    retired = catalogue.retired.accelerators.get(name or "")
    if retired is not None:
        machines = available.replacements(machine_of(pool), retired.instead)
        remedy = change_to(machine_of(pool), machines)
        if retired.since <= available.today:
            message = f"Google withdrew {name} on {retired.since}"
            yield error("accelerator-retired", location, message, remedy)
            return
        message = f"Google withdraws {name} on {retired.since}"
        yield warning("accelerator-ending", location, message, remedy)
    kind = catalogue.machines.get(pool.machine)
    if kind is not None and not catalogue.is_retired(pool.machine, available.today):
        yield from _combination_problems(pool, kind, available)


def _unknown(name: str, catalogue: Catalogue) -> str:
    return f"{name} is not in the catalogue of {catalogue.date}"


def _catalogue_entry(pool: PoolRequest) -> str:
    """Return the entry of a pool's machine and accelerator in the user's catalogue."""
    count = pool.accelerator_count
    taken = f"accelerators: {{{pool.accelerator}: [{count}]}}" if pool.accelerator else ""
    return f"machines: {{{pool.machine}: {{{taken}}}}}"


def _add_to_catalogue(hint: str, entry: str) -> str:
    """Return the remedy for an unknown name; `hint` is empty or ``; did you mean …?``."""
    alternative = f"{hint.removeprefix('; ')} or, " if hint else ""
    return f"{alternative}if it is new, add '{entry}' to {FILE_NAME}"


def _combination_problems(
    pool: PoolRequest, kind: MachineType, available: Availability
) -> Iterator[Problem]:
    name, count, wanted = pool.accelerator, pool.accelerator_count, machine_of(pool)
    without = None if kind.needs_accelerator else Machine(pool.machine)
    if name is None and (count or kind.needs_accelerator):
        number = f"an accelerator count of {count} and no type" if count else "no accelerator"
        required = ", and it needs one" if kind.needs_accelerator else ""
        yield error(
            "accelerator-missing",
            pool.key("accelerator"),
            f"{pool.machine} is requested with {number}{required}",
            change_to(wanted, [available.accelerator_on(pool.machine, count or 1) or without]),
        )
    elif name is not None and name not in kind.accelerators:
        taken = "a topology and no accelerator" if kind.tpu else "no accelerator"
        if kind.accelerators:
            taken = join_names(kind.accelerators, "or")
        on_machine = available.accelerator_on(pool.machine, count) or without
        yield error(
            "accelerator-not-on-machine",
            pool.key("accelerator.type"),
            f"{pool.machine} takes {taken}, not {name}",
            change_to(wanted, [available.machine_with(wanted, name), on_machine]),
        )
    elif name is not None and not kind.takes(name, count) and not name.startswith("TPU_"):
        counts = kind.accelerators[name]
        fewer = Machine(pool.machine, name, nearest(count, counts))
        yield error(
            "accelerator-count",
            pool.key("accelerator.count"),
            f"{pool.machine} takes {join_names(counts, 'or')} {name}, not {count}",
            change_to(wanted, [fewer, available.machine_with(wanted, name)]),
        )


def _architecture_problems(pool: PoolRequest, catalogue: Catalogue) -> Iterator[Problem]:
    kind = catalogue.machine(pool.machine)
    if kind.architecture != "amd64" and pool.image is None:
        yield error(
            "image-architecture",
            pool.key("machine"),
            f"{pool.machine} runs images for linux/{kind.architecture}, and the image that is "
            "built from the project is for linux/amd64",
            f"set image.uri to an image for linux/{kind.architecture}, or choose another machine",
        )


def _region_problems(request: JobRequest, available: Availability) -> Iterator[Problem]:
    catalogue, region = available.catalogue, request.region
    if region and region not in catalogue.regions:
        hint = did_you_mean(region, catalogue.regions)
        remedy = _add_to_catalogue(hint, f"regions: {{{region}: {{}}}}")
        yield warning("region-unknown", "region", _unknown(region, catalogue), remedy)
    elif region:
        names = dict.fromkeys(_names_in_regions(request, available))
        for name in names:
            yield from _offer_problems(name, names, available)


def _names_in_regions(request: JobRequest, available: Availability) -> Iterator[str]:
    """Yield the names under which regions offer a job's accelerators, as far as known."""
    catalogue = available.catalogue
    for pool in request.pools:
        kind = catalogue.machine(pool.machine)
        name = offered_as(kind, pool.accelerator, pool.accelerator_count)
        if name in catalogue.accelerators and not catalogue.is_retired(name, available.today):
            yield name


def _offer_problems(name: str, names: Iterable[str], available: Availability) -> Iterator[Problem]:
    catalogue, region = available.catalogue, available.region
    is_offered = catalogue.offers(region, name)
    regions = available.regions_with(name, names)
    if is_offered is None:
        near = [other for other in regions if continent(other) == continent(region)] or regions
        yield warning(
            "accelerator-in-region-unknown",
            "region",
            f"the catalogue of {catalogue.date} does not list whether {region} offers {name}",
            f"{_move_to(near)}; or if it does, add 'regions: {{{region}: {{{name}: training}}}}' "
            f"to {FILE_NAME}",
        )
    elif not is_offered:
        is_elsewhere = name in catalogue.regions[region]
        other_uses = ", though it has some for other uses" if is_elsewhere else ""
        message = f"{region} offers no {name} for training{other_uses}"
        yield error("accelerator-not-in-region", "region", message, _move_to(regions))


def _move_to(regions: list[str]) -> str:
    return f"write region: {join_names(regions, 'or')}" if regions else "choose another accelerator"


def _tpu_problems(
    pool: PoolRequest, request: JobRequest, catalogue: Catalogue
) -> Iterator[Problem]:
    kind = catalogue.machine(pool.machine)
    if not kind.has_tpu:
        return
    if len(request.pools) > 1:
        message = f"a job on TPUs has one pool, got {len(request.pools)}"
        remedy = f"remove the others: cluster: {{chief: {{machine: {pool.machine}}}}}"
        yield error("tpu-pools", pool.section, message, remedy)
    if pool.replicas > 1:
        message = f"a job on TPUs has one replica, got {pool.replicas}"
        remedy = "write count: 1, and choose a larger TPU"
        yield error("tpu-replicas", pool.key("count"), message, remedy)
    if kind.topologies and pool.topology not in kind.topologies:
        wanted = chips(pool.topology or "")
        topology = min(kind.topologies, key=lambda name: abs(chips(name) - wanted))
        spec = f"{{workerPoolSpecs: [{{machineSpec: {{tpuTopology: {topology}}}}}]}}"
        message = f"{pool.machine} has the topologies {join_names(kind.topologies, 'or')}"
        message = f"{message}, got {pool.topology or 'none'}"
        remedy = f"write vertex: {{{request.spec}: {spec}}}"
        yield error("tpu-topology", pool.key("machine"), message, remedy)
    counts, count = kind.accelerators.get(pool.accelerator or "", ()), pool.accelerator_count
    if counts and count not in counts:
        message = f"{pool.accelerator} has {join_names(counts, 'or')} cores, got {count}"
        remedy = f"write count: {nearest(count, counts)}"
        yield error("tpu-count", pool.key("accelerator.count"), message, remedy)


def _flex_start_problems(request: JobRequest, available: Availability) -> Iterator[Problem]:
    catalogue = available.catalogue
    for pool in request.pools:
        if catalogue.may_flex_start(machine_of(pool)):
            continue
        name, tpu = pool.accelerator, catalogue.machine(pool.machine).tpu
        others = available.replacements(machine_of(pool), catalogue.flex_start)
        yield error(
            "flex-start-accelerator",
            pool.key("accelerator.type" if name else "accelerator"),
            f"FLEX_START starts jobs on {join_names(catalogue.flex_start, 'or')}, and this is on "
            f"{name or tpu or 'CPUs'}",
            f"{change_to(machine_of(pool), others)}, or scheduling.strategy: SPOT",
        )
    if len({machine_of(pool) for pool in request.pools}) > 1:
        yield error(
            "flex-start-machines",
            "scheduling.strategy",
            "FLEX_START starts identical machines, and the pools of this job differ",
            "give all pools the same machine and accelerator, or write scheduling.strategy: SPOT",
        )


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
