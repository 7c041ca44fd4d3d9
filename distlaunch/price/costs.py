"""The price of a job: for an hour, up to its timeout, so far, and on other machines."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

from distlaunch import timestamps
from distlaunch.errors import JobFileError
from distlaunch.job import machine_catalogue
from distlaunch.job.reservation import ANY
from distlaunch.price.book import FILE_NAME, load_prices
from distlaunch.text import duration

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from distlaunch.engines.api import JobStatus
    from distlaunch.job.machine_catalogue import Catalogue, MachineType
    from distlaunch.job.vertex.view import JobRequest, PoolRequest
    from distlaunch.price.book import PriceBook, UnitPrice

_NOT_INCLUDED = ("boot disks", "local SSDs", "storage", "network")
_HOUR = 3600  # seconds
_CENT, _TENTH_OF_A_CENT, _MILLIONTH = Decimal("0.01"), Decimal("0.001"), Decimal("0.000001")
_ROUNDING = Context(prec=100, rounding=ROUND_HALF_UP)  # for counts of any size


@dataclass(frozen=True, slots=True)
class PoolCost:
    """The price of a worker pool; `an_hour` is None if a part is unknown."""

    role: str
    replicas: int
    an_hour: Decimal | None
    known_an_hour: Decimal
    unknown: tuple[str, ...]
    sources: tuple[str, ...]
    is_estimate: bool

    def describe(self) -> str:
        """Return role and price, such as ``workers 3 x 1.12``."""
        count = f"{self.replicas} x " if self.replicas > 1 else ""
        price = f"{count}{_rounded(self.known_an_hour / self.replicas)}"
        bounded = price if not self.unknown else f"at least {price}" if self.sources else "unknown"
        return f"{self.role.replace('_', ' ')} {bounded}"


@dataclass(frozen=True, slots=True)
class Cost:
    """The price of a job, with the fields of ``check --json``.

    An hour is of all trials that run at once. Amounts are None if a part is unknown, those of the
    known prices if all parts are.
    """

    region: str
    currency: str
    an_hour: Decimal | None
    up_to_timeout: Decimal | None
    known_an_hour: Decimal | None
    known_up_to_timeout: Decimal | None
    unknown: tuple[str, ...]  # the machine types and accelerators without a price
    why: str | None  # they have none
    strategy: str
    timeout: int
    trials: int
    trials_at_once: int
    pools: tuple[PoolCost, ...]
    sources: tuple[str, ...]
    date: dt.date | None  # of the list prices, None without them
    is_estimate: bool  # from the bundled list prices
    notes: tuple[str, ...] = ()  # what else is billed, and when
    not_included: tuple[str, ...] = _NOT_INCLUDED
    persistent_resource: str | None = None  # on whose machines it runs, billed without the job

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        plain = asdict(self)
        plain["without"] = plain.pop("not_included")
        as_data: dict[str, Any] = json.loads(json.dumps(plain, default=_json_value))
        return as_data

    def describe(self) -> str:
        """Return it in a line: the prices of an hour and up to the timeout."""
        amounts = self._amounts()
        return f"{amounts[0]} an hour, {amounts[1]} in all" if amounts else "price unknown"

    def lines(self) -> list[str]:
        """Return it for a person, in two to four lines."""
        lines: list[str] = []
        if self.persistent_resource:
            return list(self.notes)
        if amounts := self._amounts():
            an_hour, in_all = amounts
            until = f"up to its timeout of {duration(self.timeout)}"
            if self.trials > 1:
                until = f"for {self.trials} trials of up to {duration(self.timeout)}"
            source = "estimate" if self.is_estimate else "prices"
            missing = f"not including {', '.join(self.not_included)}"
            lines += (
                f"{an_hour} an hour{self._trials_and_pools()}; {in_all} {until}",
                f"{source} from {', '.join(self.sources)} ({self.strategy}); {missing}",
            )
        if self.unknown:
            names = f" for {', '.join(self.unknown)}" if self.sources else ""
            prices = ", ".join(f"{name}: PRICE" for name in self.unknown)
            keys = f"{self.region or 'REGION'}: {{{self.strategy}: {{{prices}}}}}"
            lines += (
                f"unknown{names}: {self.why}",
                f"add prices per hour to {FILE_NAME}: '{keys}'",
            )
        return [*lines, *self.notes]

    def _amounts(self) -> tuple[str, str] | None:
        """Return the known price of an hour and up to the timeout in words, None without any."""
        if self.known_an_hour is None or self.known_up_to_timeout is None:
            return None
        bound = "at least " if self.unknown else "about " if self.is_estimate else ""
        an_hour = format_money(self.known_an_hour, self.currency)
        return (
            f"{bound}{an_hour}",
            f"{bound}{format_money(self.known_up_to_timeout, self.currency)}",
        )

    def _trials_and_pools(self) -> str:
        is_tuned = self.trials > 1
        at_once = f" with {self.trials_at_once} trials at once" if is_tuned else ""
        if len(self.pools) == 1 and not self.unknown:
            return at_once
        pools = ", ".join(pool.describe() for pool in self.pools)
        return f"{at_once} ({'each: ' if is_tuned else ''}{pools})"


def estimate_cost(request: JobRequest, catalogue: Catalogue, prices: PriceBook) -> Cost:
    """Return the price of a job; `catalogue` has the CPUs and the memory of its machines."""
    pools = tuple(
        _pool_cost(pool, catalogue.machine(pool.machine), prices) for pool in request.pools
    )
    at_once = min(request.trials_at_once, request.trials)
    of_trial = sum((pool.known_an_hour for pool in pools), Decimal(0))
    an_hour = of_trial * at_once
    in_all = of_trial * request.trials * request.timeout / _HOUR
    unknown = _unique(name for pool in pools for name in pool.unknown)
    sources = _unique(name for pool in pools for name in pool.sources)
    is_estimate = any(pool.is_estimate for pool in pools)
    cost = Cost(
        region=request.region,
        currency=prices.currency,
        an_hour=None if unknown else an_hour,
        up_to_timeout=None if unknown else in_all,
        known_an_hour=an_hour if sources else None,
        known_up_to_timeout=in_all if sources else None,
        unknown=unknown,
        why=prices.why_unknown if unknown else None,
        strategy=request.strategy,
        timeout=request.timeout,
        trials=request.trials,
        trials_at_once=at_once,
        pools=pools,
        sources=sources,
        date=prices.listed.date if prices.listed and is_estimate else None,
        is_estimate=is_estimate,
        notes=tuple(map(_reservation_note, request.reservations)),
    )
    return _on_persistent_resource(cost, name) if (name := request.persistent_resource) else cost


def _on_persistent_resource(cost: Cost, name: str) -> Cost:
    """Return the price of a job on machines that are billed while they are up: nothing.

    https://docs.cloud.google.com/vertex-ai/docs/training/persistent-resource-overview
    """
    bound = "at least " if cost.unknown else "about " if cost.is_estimate else ""
    known = cost.known_an_hour
    an_hour = "unknown" if known is None else f"{bound}{format_money(known, cost.currency)} an hour"
    notes = (
        f"none with the job: persistent resource {name} is billed while up, also without jobs",
        f"those of its machines that the job uses: {an_hour} ('distlaunch machines list')",
    )
    return replace(
        cost,
        an_hour=Decimal(0),
        up_to_timeout=Decimal(0),
        known_an_hour=Decimal(0),
        known_up_to_timeout=Decimal(0),
        unknown=(),
        why=None,
        notes=notes,
        persistent_resource=name,
    )


def _reservation_note(name: str) -> str:
    of = "a reservation" if name == ANY else f"reservation {name}"
    return f"machines of {of} are billed without the job, too, but for Vertex AI's fee of 15 %"


def cost_so_far(job: JobStatus, folder: Path) -> dict[str, Any] | None:
    """Return the price of a job's time, None if a part is unknown or not billed with the job.

    It is unknown, too, if a price or catalogue file is malformed, which `check` reports.

    Parameters
    ----------
    job
        Its time is from its start to its end or now, of a tuning job the sum of its trials'.
    folder
        Of the project, with the user's price and catalogue files if there are any.

    Returns
    -------
        The keys `amount`, `an_hour` (of a tuning job: of one trial), `currency`, `sources` and
        `is_estimate`.
    """
    if job.request.persistent_resource:
        return None
    try:
        catalogue = machine_catalogue.of_project(folder)
        prices = load_prices(job.request, folder)
    except JobFileError:
        return None
    cost = estimate_cost(replace(job.request, trials=1), catalogue, prices)
    if cost.an_hour is None:
        return None
    now = timestamps.format(time.time())
    runs = [trial.seconds for trial in job.trials] if job.study else [job.run_seconds(now)]
    hours = Decimal(sum(filter(None, runs))) / _HOUR
    return {
        "amount": json_number(cost.an_hour * hours),
        "an_hour": json_number(cost.an_hour),
        "currency": cost.currency,
        "sources": list(cost.sources),
        "is_estimate": cost.is_estimate,
    }


def describe_amount(cost: Mapping[str, Any], *, is_short: bool = False) -> str:
    """Return the amount of a cost so far, such as ``about 1.24 USD``, or short ``1.24 USD``."""
    amount, unit = Decimal(str(cost["amount"])), cost["currency"]
    if amount < _CENT:
        return f"{'<' if is_short else 'less than '}{_CENT} {unit}"
    return f"{'about ' if cost['is_estimate'] and not is_short else ''}{amount:.2f} {unit}"


def _pool_cost(pool: PoolRequest, kind: MachineType, prices: PriceBook) -> PoolCost:
    machines = pool.replicas * _machines_per_replica(pool)
    accelerator, machine = pool.accelerator, prices.price(pool.machine)
    of_accelerator = prices.price(accelerator) if accelerator else None
    items: list[tuple[str, int, UnitPrice | None]] = [(pool.machine, machines, machine)]
    # A user's price of a machine is without its GPUs, if there is one of these.
    is_whole = bool(machine and (machine.is_estimate or of_accelerator is None))
    is_whole = is_whole and kind.price_includes_gpus
    if accelerator and not is_whole:
        items.append((accelerator, pool.replicas * pool.accelerator_count, of_accelerator))
    elif kind.needs_accelerator and not is_whole:
        items.append((next(iter(kind.accelerators)), machines, None))
    known = sum((count * price.amount for _, count, price in items if price), Decimal(0))
    unknown = tuple(name for name, _, price in items if price is None)
    return PoolCost(
        role=pool.role,
        replicas=pool.replicas,
        an_hour=None if unknown else known,
        known_an_hour=known,
        unknown=unknown,
        sources=_unique(price.source for _, _, price in items if price),
        is_estimate=any(price.is_estimate for _, _, price in items if price),
    )


def _machines_per_replica(pool: PoolRequest) -> int:
    """Return the number of machines of a replica: a large TPU topology spans several."""
    chips_on_machine = pool.machine.rpartition("-")[2].removesuffix("t")
    if pool.topology is None or not chips_on_machine.isdecimal():
        return 1
    return max(1, machine_catalogue.chips(pool.topology) // int(chips_on_machine))


def format_money(amount: Decimal, currency: str) -> str:
    """Return an amount such as ``1,234.50 USD``, below 1 with a tenth of a cent."""
    return f"{_rounded(amount)} {currency}"


def json_number(amount: Decimal) -> float:
    """Return an amount for JSON, to a millionth."""
    return float(amount.quantize(_MILLIONTH, context=_ROUNDING))


def _json_value(value: object) -> object:
    return json_number(value) if isinstance(value, Decimal) else str(value)


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _rounded(amount: Decimal) -> str:
    unit = _CENT if amount == 0 or amount >= 1 else _TENTH_OF_A_CENT
    return f"{amount.quantize(unit, context=_ROUNDING):,}"
