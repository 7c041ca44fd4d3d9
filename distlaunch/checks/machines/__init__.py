"""Machines, accelerators and regions: what a job asks for that Vertex AI does not have.

What the catalogue knows is held against it; what it does not know is told and lets pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.checks.machines.alternatives import Market, continent, either, short
from distlaunch.checks.machines.flex_start import flex_start_problems
from distlaunch.checks.machines.tpus import tpu_problems
from distlaunch.checks.problem import error, warning
from distlaunch.errors import did_you_mean
from distlaunch.job.machine_catalogue import (
    FILE_NAME,
    Catalogue,
    offered_as,
    suggest_accelerator,
    suggest_machine,
)
from distlaunch.job.model import Machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import date

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.request_view import JobRequest, PoolRequest
    from distlaunch.job.machine_catalogue import MachineType


def problems(asked: JobRequest, catalogue: Catalogue, today: date) -> Iterator[Problem]:
    """Yield what speaks against a job's machines, accelerators and region.

    Parameters
    ----------
    asked
        What the job asks for.
    catalogue
        What there is.
    today
        The day that decides what is there no more.
    """
    market = Market(catalogue, asked.region, today)
    for pool in asked.pools:
        yield from _machine_problems(pool, market)
        yield from _accelerator_problems(pool, market)
        yield from _architecture_problems(pool, catalogue)
    yield from _region_problems(asked, market)
    yield from tpu_problems(asked, catalogue)
    yield from flex_start_problems(asked, market)


def _machine_problems(pool: PoolRequest, market: Market) -> Iterator[Problem]:
    catalogue, where, name = market.catalogue, pool.key("machine"), pool.machine
    if catalogue.is_retired(name, market.today):
        yield error("machine-retired", where, *_of_retired_machine(pool, market))
    elif not name:
        yield error("machine-unknown", where, "no machine is said", "write one, as n1-standard-8")
    elif name not in catalogue.machines and name not in catalogue.retired_machines:
        hint = _hint(suggest_machine(name, catalogue.machines))
        yield warning(
            "machine-unknown",
            where,
            f"the catalogue of {catalogue.date} does not know {name}",
            f"{hint}if it is new, {_as_known(pool)}",
        )


def _of_retired_machine(pool: PoolRequest, market: Market) -> tuple[str, str]:
    """Return what a name of the past is, and what to write today."""
    gone = market.catalogue.retired_machines[pool.machine]
    was = gone.replacement
    instead: tuple[Machine, ...] = (was,)
    accelerator = was.accelerator
    if accelerator and market.catalogue.is_retired(accelerator, market.today):
        others = market.catalogue.retired_accelerators[accelerator].replacements
        instead = market.in_place_of(was, others)
    with_it = f" with {was.accelerator_count} {accelerator}" if accelerator else ""
    it_was = (
        f"{was.type} comes nearest, as {gone.why}" if gone.why else f"it was {was.type}{with_it}"
    )
    what = f"{pool.machine} is a name that ended on {gone.since}; {it_was}"
    return what, either(Machine(pool.machine), instead)


def _accelerator_problems(pool: PoolRequest, market: Market) -> Iterator[Problem]:
    """Tell of an accelerator by itself, and where nothing is wrong there, of it on its machine."""
    catalogue, name = market.catalogue, pool.accelerator
    if name is not None and name not in catalogue.accelerators:
        yield _unknown_accelerator(pool, catalogue)
        return
    gone = catalogue.retired_accelerators.get(name or "")
    if gone is not None:
        others = market.in_place_of(_machine(pool), gone.replacements)
        remedy = either(_machine(pool), others)
        if gone.since <= market.today:
            what = f"Google withdrew {name} on {gone.since}"
            yield error("accelerator-retired", pool.key("accelerator.type"), what, remedy)
            return
        what = f"Google withdraws {name} on {gone.since}"
        yield warning("accelerator-ending", pool.key("accelerator.type"), what, remedy)
    kind = catalogue.machines.get(pool.machine)
    if kind is not None and not catalogue.is_retired(pool.machine, market.today):
        yield from _pairing_problems(pool, kind, market)


def _unknown_accelerator(pool: PoolRequest, catalogue: Catalogue) -> Problem:
    name, known = pool.accelerator or "", catalogue.accelerators
    hint = _hint(suggest_accelerator(name, known))
    return warning(
        "accelerator-unknown",
        pool.key("accelerator.type"),
        f"the catalogue of {catalogue.date} does not know {name}",
        f"{hint}if it is new, {_as_known(pool)}",
    )


def _as_known(pool: PoolRequest) -> str:
    """Return how a user's own catalogue says a pool's machine with its accelerators."""
    count = pool.accelerator_count
    has = f"accelerators: {{{pool.accelerator}: [{count}]}}" if pool.accelerator else ""
    return f"say 'machines: {{{pool.machine}: {{{has}}}}}' in {FILE_NAME}"


def _hint(did_you_mean: str) -> str:
    """Return the beginning of a remedy, where something like it is known."""
    return f"{did_you_mean.removeprefix('; ')} or, " if did_you_mean else ""


def _pairing_problems(pool: PoolRequest, kind: MachineType, market: Market) -> Iterator[Problem]:
    name, count, wanted = pool.accelerator, pool.accelerator_count, _machine(pool)
    if name is None:
        yield from _no_accelerator_problems(pool, kind, market)
    elif name not in kind.accelerators:
        others = [market.machine_with(name, count, pool.machine)]
        others.append(market.accelerator_on(pool.machine, count) or _bare(pool, kind))
        yield error(
            "accelerator-not-on-machine",
            pool.key("accelerator.type"),
            f"{pool.machine} takes {_taken(kind)}, not {name}",
            either(wanted, others),
        )
    elif not kind.takes(name, count) and not name.startswith("TPU_"):
        others = [market.with_count(wanted), market.machine_with(name, count, pool.machine)]
        yield error(
            "accelerator-count",
            pool.key("accelerator.count"),
            f"{pool.machine} takes {short(map(str, kind.accelerators[name]))} {name}, not {count}",
            either(wanted, others),
        )


def _taken(kind: MachineType) -> str:
    if kind.accelerators:
        return short(kind.accelerators)
    return "a topology and no accelerator" if kind.tpu else "no accelerator"


def _bare(pool: PoolRequest, kind: MachineType) -> Machine | None:
    """Return a machine without accelerators, where it comes without."""
    return None if kind.needs_accelerator else Machine(pool.machine)


def _no_accelerator_problems(
    pool: PoolRequest, kind: MachineType, market: Market
) -> Iterator[Problem]:
    count = pool.accelerator_count
    if not count and not kind.needs_accelerator:
        return
    instead = market.accelerator_on(pool.machine, count or 1) or _bare(pool, kind)
    said = (
        f"{count} accelerator{'s' if count > 1 else ''} of no type" if count else "no accelerator"
    )
    comes = ", and it does not come without one" if kind.needs_accelerator else ""
    yield error(
        "accelerator-missing",
        pool.key("accelerator"),
        f"{pool.machine} is asked for with {said}{comes}",
        either(_machine(pool), [instead]),
    )


def _architecture_problems(pool: PoolRequest, catalogue: Catalogue) -> Iterator[Problem]:
    kind = catalogue.machines.get(pool.machine)
    if kind is not None and kind.architecture != "amd64" and pool.image is None:
        yield error(
            "image-architecture",
            pool.key("machine"),
            f"{pool.machine} runs images for linux/{kind.architecture}, and the one that is built "
            "from the project is for linux/amd64",
            f"say image.uri: HOST/PATH:TAG, of one for linux/{kind.architecture}, or choose "
            "another machine",
        )


def _region_problems(asked: JobRequest, market: Market) -> Iterator[Problem]:
    catalogue, region = market.catalogue, asked.region
    if not region:
        return
    if region not in catalogue.regions:
        hint = _hint(did_you_mean(region, catalogue.regions))
        yield warning(
            "region-unknown",
            "region",
            f"the catalogue of {catalogue.date} does not know {region}",
            f"{hint}if it is new, say 'regions: {{{region}: {{}}}}' in {FILE_NAME}",
        )
        return
    names = dict.fromkeys(_offered_names(asked, market))
    for name in names:
        yield from _offer_problems(name, names, market)


def _offered_names(asked: JobRequest, market: Market) -> Iterator[str]:
    """Yield the names by which regions offer what the job has, as far as they are known."""
    catalogue = market.catalogue
    for pool in asked.pools:
        kind = catalogue.machines.get(pool.machine)
        name = offered_as(kind, pool.accelerator, pool.accelerator_count)
        if name in catalogue.accelerators and not catalogue.is_retired(name, market.today):
            yield name


def _offer_problems(name: str, names: Iterable[str], market: Market) -> Iterator[Problem]:
    catalogue, region = market.catalogue, market.region
    offered = catalogue.offers(region, name)
    others = market.regions_with(name, names)
    if offered is None:
        near = [each for each in others if continent(each) == continent(region)] or others
        yield warning(
            "accelerator-in-region-unknown",
            "region",
            f"the catalogue of {catalogue.date} does not say whether {region} offers {name}",
            f"{_move(near)}; or if it does, say 'regions: {{{region}: {{{name}: training}}}}' "
            f"in {FILE_NAME}",
        )
    elif not offered:
        elsewhere = name in catalogue.regions[region].not_for_training
        has_some = ", though it has some for other uses" if elsewhere else ""
        what = f"{region} offers no {name} for training{has_some}"
        yield error("accelerator-not-in-region", "region", what, _move(others))


def _move(regions: Sequence[str]) -> str:
    return f"write region: {short(regions)}" if regions else "choose another accelerator"


def _machine(pool: PoolRequest) -> Machine:
    return Machine(pool.machine, pool.accelerator, pool.accelerator_count)
