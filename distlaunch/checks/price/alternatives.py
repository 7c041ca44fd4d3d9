"""A job on each machine type that could run it, by price."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import compress
from typing import TYPE_CHECKING, Any

from distlaunch.checks.machines.flex_start import may_start
from distlaunch.checks.price.costs import cost, money, number
from distlaunch.job.machine_catalogue import offered_as
from distlaunch.text import table

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator, Sequence

    from distlaunch.checks.price.quotes import Prices
    from distlaunch.checks.request_view import JobRequest, PoolRequest
    from distlaunch.job.machine_catalogue import Catalogue, MachineType

_GPU = "NVIDIA_"

_Kind = tuple[str, "str | None", int]
"""Machine type, accelerator and how many of it."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A job with its machines of the chief's kind changed to another.

    Parameters
    ----------
    machine, accelerator, count
        What they are; None and 0 without an accelerator.
    cpus, memory_gb
        Of one machine, None where they are not known.
    an_hour
        What the whole job costs an hour, None where a part of that is unknown.
    currency
        Of what it costs.
    is_own
        Whether that is what the job asks for.
    """

    machine: str
    accelerator: str | None
    count: int
    cpus: int | None
    memory_gb: float | None
    an_hour: Decimal | None
    currency: str
    is_own: bool

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "machine": self.machine,
            "accelerator": self.accelerator,
            "accelerator_count": self.count,
            "cpus": self.cpus,
            "memory_gb": self.memory_gb,
            "an_hour": number(self.an_hour),
            "currency": self.currency,
            "is_own": self.is_own,
        }


def compare(
    asked: JobRequest, catalogue: Catalogue, prices: Prices, today: dt.date
) -> tuple[Offer, ...]:
    """Return the job on each machine type that could run it, the cheapest first, unknown last.

    All pools of machines like the chief's move. A job with GPUs can run on any that the region
    offers for training, as many on a machine as now; one without on any machine that needs none; a
    TPU only on machines with the same.

    Parameters
    ----------
    today
        Says what is withdrawn.
    """
    if not asked.pools:
        return ()
    own = _kind(asked.pools[0])
    others = set(_kinds(asked, catalogue, today)) - {own}
    offers = [_offer(kind, own, asked, catalogue, prices) for kind in [own, *others]]
    return tuple(sorted(offers, key=_by_price))


def comparison(offers: Sequence[Offer]) -> str:
    """Return offers as a table, a line each; no column is empty."""
    heads = ("machine", "accelerators", "vCPUs", "GB", "an hour", "")
    rows = [_row(offer) for offer in offers]
    filled = [any(column) for column in zip(*rows, strict=True)]
    return table(tuple(compress(row, filled)) for row in (heads, *rows))


def _kinds(asked: JobRequest, catalogue: Catalogue, today: dt.date) -> Iterator[_Kind]:
    chief = asked.pools[0]
    for name, kind in catalogue.machines.items():
        if catalogue.is_retired(name, today):
            continue
        for accelerator in _alike(chief, catalogue.machines.get(chief.machine), kind):
            if _can_be_had(asked, catalogue, name, accelerator, today):
                yield name, accelerator, chief.accelerator_count


def _alike(
    chief: PoolRequest, chiefs: MachineType | None, kind: MachineType
) -> Iterable[str | None]:
    """Return with which accelerators a machine could stand in for the chief's."""
    count = chief.accelerator_count
    if kind.architecture != (chiefs.architecture if chiefs else "amd64"):
        return []  # its image is for another
    if chief.topology is not None:
        is_same = chiefs is not None and kind.tpu == chiefs.tpu
        return [None] if is_same and chief.topology in kind.topologies else []
    if chief.accelerator is None:
        return [] if kind.needs_accelerator or kind.has_tpu else [None]
    names = [name for name in kind.accelerators if kind.takes(name, count)]
    if chief.accelerator.startswith(_GPU):
        return [name for name in names if name.startswith(_GPU)]
    return [name for name in names if name == chief.accelerator]


def _can_be_had(
    asked: JobRequest, catalogue: Catalogue, machine: str, accelerator: str | None, today: dt.date
) -> bool:
    if asked.strategy == "FLEX_START" and not may_start(machine, accelerator, catalogue):
        return False
    wanted = offered_as(catalogue.machines[machine], accelerator, asked.pools[0].accelerator_count)
    if wanted is None:
        return True
    is_gone = accelerator is not None and catalogue.is_retired(accelerator, today)
    return not is_gone and bool(catalogue.offers(asked.region, wanted))


def _offer(
    kind: _Kind, own: _Kind, asked: JobRequest, catalogue: Catalogue, prices: Prices
) -> Offer:
    machine, accelerator, count = kind
    pools = tuple(
        replace(pool, machine=machine, accelerator=accelerator, accelerator_count=count)
        if _kind(pool) == own
        else pool
        for pool in asked.pools
    )
    known = catalogue.machines.get(machine)
    return Offer(
        machine=machine,
        accelerator=accelerator,
        count=count,
        cpus=known.cpus if known else None,
        memory_gb=known.memory_gb if known else None,
        an_hour=cost(replace(asked, pools=pools), catalogue, prices).an_hour,
        currency=prices.currency,
        is_own=kind == own,
    )


def _kind(pool: PoolRequest) -> _Kind:
    return pool.machine, pool.accelerator, pool.accelerator_count


def _by_price(offer: Offer) -> tuple[bool, Decimal, int, str, str]:
    is_unknown = offer.an_hour is None
    price = offer.an_hour or Decimal(0)
    return is_unknown, price, offer.cpus or 0, offer.machine, offer.accelerator or ""


def _row(offer: Offer) -> tuple[str, ...]:
    return (
        offer.machine,
        f"{offer.count} {offer.accelerator}" if offer.accelerator else "",
        str(offer.cpus or ""),
        f"{offer.memory_gb:g}" if offer.memory_gb else "",
        "unknown" if offer.an_hour is None else money(offer.an_hour, offer.currency),
        "this job's" if offer.is_own else "",
    )
