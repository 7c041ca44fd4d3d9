"""The price of a job on other machines."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from itertools import compress
from typing import TYPE_CHECKING, Any

from distlaunch.job.model import Machine
from distlaunch.job.vertex.view import machine_of
from distlaunch.price.costs import estimate_cost, format_money, json_number
from distlaunch.text import Table

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Sequence

    from distlaunch.job.machine_catalogue import Catalogue, MachineType
    from distlaunch.job.vertex.view import JobRequest, PoolRequest
    from distlaunch.price.book import PriceBook


@dataclass(frozen=True, slots=True)
class MachineOption:
    """The price of a job with the chief's machine replaced, with the fields of ``check --json``."""

    machine: str
    accelerator: str | None
    accelerator_count: int
    cpus: int | None
    memory_gb: float | None
    an_hour: Decimal | None  # of the whole job, None if a part is unknown
    currency: str
    is_own: bool  # the job's own machine

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        price = self.an_hour
        return {**asdict(self), "an_hour": None if price is None else json_number(price)}


def compare_machines(
    request: JobRequest, catalogue: Catalogue, prices: PriceBook, today: dt.date
) -> tuple[MachineOption, ...]:
    """Return the machine types that could run a job, the cheapest first, unknown prices last.

    All pools with the chief's machine change. A job with GPUs can run on any GPU that the region
    offers for training, with the same number on each machine; a job without on any machine that
    needs none. TPUs are not compared.
    """
    if not request.pools:
        return ()
    own = machine_of(request.pools[0])
    machines = {own, *_machines(request, catalogue, today)}
    options = [_option(machine, own, request, catalogue, prices) for machine in machines]
    return tuple(sorted(options, key=_by_price))


def format_options(options: Sequence[MachineOption]) -> Table:
    """Return a table with a line for each option, without empty columns."""
    heads = ("machine", "accelerators", "vCPUs", "GB", "an hour", "")
    rows = [_row(option) for option in options]
    is_filled = [any(column) for column in zip(*rows, strict=True)]
    shown = [tuple(compress(row, is_filled)) for row in (heads, *rows)]
    return Table(shown, optional=[n for n, head in enumerate(shown[0]) if head in ("vCPUs", "GB")])


def _machines(request: JobRequest, catalogue: Catalogue, today: dt.date) -> Iterator[Machine]:
    chief = request.pools[0]
    own_kind = catalogue.machine(chief.machine)
    for name, kind in catalogue.machines.items():
        if catalogue.is_retired(name, today) or kind.architecture != own_kind.architecture:
            continue
        for accelerator in _accelerators(chief, kind):
            if accelerator is None or (
                catalogue.offers(request.region, accelerator)
                and not catalogue.is_retired(accelerator, today)
            ):
                machine = Machine(name, accelerator, chief.accelerator_count)
                if request.strategy != "FLEX_START" or catalogue.may_flex_start(machine):
                    yield machine


def _accelerators(chief: PoolRequest, kind: MachineType) -> list[str | None]:
    """Return the accelerators with which a machine could replace the chief's."""
    if kind.has_tpu or chief.topology is not None:
        return []
    if chief.accelerator is None:
        return [] if kind.needs_accelerator else [None]
    if not chief.accelerator.startswith("NVIDIA_"):
        return []
    return [name for name in kind.accelerators if kind.takes(name, chief.accelerator_count)]


def _option(
    machine: Machine, own: Machine, request: JobRequest, catalogue: Catalogue, prices: PriceBook
) -> MachineOption:
    name, accelerator, count = machine.type, machine.accelerator, machine.accelerator_count
    pools = tuple(
        replace(pool, machine=name, accelerator=accelerator, accelerator_count=count)
        if machine_of(pool) == own
        else pool
        for pool in request.pools
    )
    alone = replace(request, pools=pools, persistent_resource=None)
    price = estimate_cost(alone, catalogue, prices).an_hour
    kind = catalogue.machine(name)
    size = (kind.cpus, kind.memory_gb)
    return MachineOption(
        name, accelerator, count, *size, price, prices.currency, is_own=machine == own
    )


def _by_price(option: MachineOption) -> tuple[bool, Decimal, int, str, str]:
    price = option.an_hour
    size = (option.cpus or 0, option.machine, option.accelerator or "")
    return price is None, price or Decimal(0), *size


def _row(option: MachineOption) -> tuple[str, ...]:
    price = option.an_hour
    return (
        option.machine,
        f"{option.accelerator_count} {option.accelerator}" if option.accelerator else "",
        str(option.cpus or ""),
        f"{option.memory_gb:g}" if option.memory_gb else "",
        "unknown" if price is None else format_money(price, option.currency),
        "this job's" if option.is_own else "",
    )
