"""What a job costs, an hour and up to its timeout."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

from distlaunch.checks.limits import boot_disk
from distlaunch.checks.price.file import FILE_NAME
from distlaunch.checks.price.skus import has_local_ssd
from distlaunch.job.machine_catalogue import chips
from distlaunch.text import duration, join_names

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

    from distlaunch.checks.price.quotes import Prices, Quote
    from distlaunch.checks.request_view import JobRequest, PoolRequest
    from distlaunch.job.machine_catalogue import Catalogue, MachineType
    from distlaunch.job.model import Strategy

BOOT_DISK, LOCAL_SSD = "boot disks", "local SSDs"

_HOUR = 3600
_USUAL_DISK_GB = 100  # DiskSpec's own default
_NEVER = ("storage", "network")  # what a job may cost beside its machines
_CENT, _TENTH_OF_A_CENT, _MILLIONTH = Decimal("0.01"), Decimal("0.001"), Decimal("0.000001")
_ROUNDING = Context(prec=100, rounding=ROUND_HALF_UP)  # whatever somebody asks for


@dataclass(frozen=True, slots=True)
class PoolCost:
    """What a worker pool costs an hour.

    Parameters
    ----------
    role, replicas
        The pool.
    at_least
        What is known of it.
    unknown
        The machine types and accelerators without a price.
    sources
        Who says so.
    within, without
        What of `BOOT_DISK` and `LOCAL_SSD` its machines have, and is in it or is not.
    """

    role: str
    replicas: int
    at_least: Decimal
    unknown: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    without: tuple[str, ...] = (BOOT_DISK,)

    @property
    def an_hour(self) -> Decimal | None:
        """All of it, None where a part is unknown."""
        return None if self.unknown else self.at_least


@dataclass(frozen=True, slots=True)
class Cost:
    """What a job costs.

    Parameters
    ----------
    timeout
        Seconds, of each trial.
    trials, trials_at_once
        Of a tuned job; 1 of any other.
    date
        The day of Google's price list, None where nothing is from there.
    why
        Why Google's price list is not known, if it isn't.
    """

    region: str
    strategy: Strategy
    currency: str
    pools: tuple[PoolCost, ...]
    timeout: int
    trials: int = 1
    trials_at_once: int = 1
    date: dt.date | None = None
    why: str = ""

    @property
    def unknown(self) -> tuple[str, ...]:
        """The machine types and accelerators without a price, each once."""
        return tuple(dict.fromkeys(name for pool in self.pools for name in pool.unknown))

    @property
    def sources(self) -> tuple[str, ...]:
        """Who says what things cost, each once."""
        return tuple(dict.fromkeys(name for pool in self.pools for name in pool.sources))

    @property
    def without(self) -> tuple[str, ...]:
        """What is not in it, with the pools where it is in it for others."""
        return (*self._extras(is_within=False), *_NEVER)

    @property
    def within(self) -> tuple[str, ...]:
        """What is in it beside machines and accelerators, with the pools as in `without`."""
        return tuple(self._extras(is_within=True))

    @property
    def at_least(self) -> Decimal:
        """What is known of an hour of all that runs at once."""
        return self._of_one * self.trials_at_once

    @property
    def an_hour(self) -> Decimal | None:
        """What an hour of all that runs at once costs, None where a part is unknown."""
        return None if self.unknown else self.at_least

    @property
    def at_least_up_to_timeout(self) -> Decimal:
        """What is known of the whole job, if all of it runs up to its timeout."""
        return self._of_one * self.trials * self.timeout / _HOUR

    @property
    def up_to_timeout(self) -> Decimal | None:
        """What the whole job costs if all of it runs up to its timeout, or None."""
        return None if self.unknown else self.at_least_up_to_timeout

    @property
    def _of_one(self) -> Decimal:
        return sum((pool.at_least for pool in self.pools), Decimal(0))

    def _extras(self, *, is_within: bool) -> Iterator[str]:
        for thing in (BOOT_DISK, LOCAL_SSD):
            having = [pool for pool in self.pools if thing in pool.within + pool.without]
            roles = [_role(pool) for pool in having if (thing in pool.within) is is_within]
            if roles:
                yield thing if len(roles) == len(having) else f"{thing} of {join_names(roles)}"

    def lines(self) -> tuple[str, ...]:
        """Return it for a person, in two to four lines."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.sources:
            yield f"{self._of_an_hour()}; {self._of_all()}"
            within = f", with {join_names(self.within)}" if self.within else ""
            without = f", without {join_names(self.without)}"
            yield f"by {join_names(self.sources)} ({self.strategy}){within}{without}"
        if self.unknown:
            names = f" for {join_names(self.unknown)}" if self.sources else ""
            yield f"unknown{names}: {self._why()}"
            yield self._remedy()

    def _of_an_hour(self) -> str:
        amount = f"{self._bound()}{money(self.at_least, self.currency)} an hour"
        at_once = f" with {self.trials_at_once} trials at once" if self.trials > 1 else ""
        return f"{amount}{at_once}{self._per_pool()}"

    def _of_all(self) -> str:
        amount = f"{self._bound()}{money(self.at_least_up_to_timeout, self.currency)}"
        if self.trials > 1:
            return f"{amount} for {self.trials} trials of up to {duration(self.timeout)}"
        return f"{amount} up to its timeout of {duration(self.timeout)}"

    def _bound(self) -> str:
        return "at least " if self.unknown else ""

    def _why(self) -> str:
        return self.why or f"Google's price list has no single price for it in {self.region}"

    def _per_pool(self) -> str:
        if len(self.pools) == 1 and not self.unknown:
            return ""
        shares = ", ".join(self._share(pool) for pool in self.pools)
        each = "of each: " if self.trials > 1 else ""
        return f" ({each}{shares})"

    def _share(self, pool: PoolCost) -> str:
        role = _role(pool)
        if pool.unknown and not pool.sources:
            return f"{role} unknown"
        bound = "at least " if pool.unknown else ""
        if pool.replicas == 1:
            return f"{role} {bound}{_rounded(pool.at_least)}"
        each = _rounded(pool.at_least / pool.replicas)
        return f"{role} {bound}{pool.replicas} x {each}"

    def _remedy(self) -> str:
        names = ", ".join(f"{name}: PRICE" for name in self.unknown)
        region = self.region or "REGION"
        return (
            f"say what you pay an hour in {FILE_NAME}, as "
            f"'{region}: {{{self.strategy}: {{{names}}}}}'"
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data; amounts are None where a part of them is unknown."""
        return {
            "currency": self.currency,
            "an_hour": number(self.an_hour),
            "up_to_timeout": number(self.up_to_timeout),
            "known_an_hour": number(self.at_least) if self.sources else None,
            "known_up_to_timeout": number(self.at_least_up_to_timeout) if self.sources else None,
            "unknown": list(self.unknown),
            "why": self._why() if self.unknown else None,
            "strategy": self.strategy,
            "timeout": self.timeout,
            "trials": self.trials,
            "trials_at_once": self.trials_at_once,
            "pools": [
                {
                    "role": pool.role,
                    "replicas": pool.replicas,
                    "an_hour": number(pool.an_hour),
                    "unknown": list(pool.unknown),
                }
                for pool in self.pools
            ],
            "sources": list(self.sources),
            "date": self.date.isoformat() if self.date else None,
            "with": list(self.within),
            "without": list(self.without),
        }


def cost(asked: JobRequest, catalogue: Catalogue, prices: Prices) -> Cost:
    """Return what a job costs.

    Parameters
    ----------
    catalogue
        Knows how many CPUs and how much memory the machines have.
    """
    pools = tuple(_pool(pool, catalogue.machines.get(pool.machine), prices) for pool in asked.pools)
    is_google = any(source != prices.own_name for pool in pools for source in pool.sources)
    return Cost(
        region=asked.region,
        strategy=asked.strategy,
        currency=prices.currency,
        pools=pools,
        timeout=asked.timeout,
        trials=asked.trials,
        trials_at_once=min(asked.trials_at_once, asked.trials),
        date=prices.date if is_google else None,
        why=prices.why,
    )


def money(amount: Decimal, currency: str) -> str:
    """Return an amount as it is shown, as ``1,234.50 USD``; below 1 to a tenth of a cent."""
    return f"{_rounded(amount)} {currency}"


def _pool(pool: PoolRequest, kind: MachineType | None, prices: Prices) -> PoolCost:
    machines = pool.replicas * _machines(pool)
    machine = prices.of_machine(pool.machine, kind)
    parts: list[tuple[str, int, Quote | None]] = [(pool.machine, machines, machine)]
    if pool.accelerator:
        count = pool.replicas * pool.accelerator_count
        parts.append((pool.accelerator, count, prices.of_accelerator(pool.accelerator)))
    elif kind and kind.needs_accelerator:
        parts.append((next(iter(kind.accelerators)), machines, None))
    disk = _disk(pool, machine, prices)
    if disk:
        parts.append((BOOT_DISK, machines, disk))
    is_within = {BOOT_DISK: disk is not None}
    if _has_local_ssd(pool, kind, machine, prices):
        is_within[LOCAL_SSD] = prices.strategy != "STANDARD"
    known = [(count, quote) for _, count, quote in parts if quote]
    return PoolCost(
        role=pool.role,
        replicas=pool.replicas,
        at_least=sum((count * quote.amount for count, quote in known), Decimal(0)),
        unknown=tuple(name for name, _, quote in parts if quote is None),
        sources=tuple(dict.fromkeys(quote.source for _, quote in known)),
        within=tuple(name for name, is_in in is_within.items() if is_in),
        without=tuple(name for name, is_in in is_within.items() if not is_in),
    )


def _role(pool: PoolCost) -> str:
    return pool.role.replace("_", " ")


def _machines(pool: PoolRequest) -> int:
    """Return how many machines a replica is: a TPU of several has its chips on all of them."""
    on_one = pool.machine.rpartition("-")[2].removesuffix("t")
    if pool.topology is None or not on_one.isdecimal():
        return 1
    return max(1, chips(pool.topology) // int(on_one))


def _disk(pool: PoolRequest, machine: Quote | None, prices: Prices) -> Quote | None:
    """Return what a boot disk costs, beside a machine whose price is Google's and so without it."""
    if machine is None or machine.source == prices.own_name:
        return None
    return prices.of_disk(pool.disk_type or boot_disk(pool.machine), pool.disk_gb or _USUAL_DISK_GB)


def _has_local_ssd(
    pool: PoolRequest, kind: MachineType | None, machine: Quote | None, prices: Prices
) -> bool:
    """Whether there are local SSDs beside a price of Google's; one's own is of all of a machine."""
    if kind is None or machine is None or machine.source == prices.own_name:
        return False
    return has_local_ssd(pool.machine, kind)


def _rounded(amount: Decimal) -> str:
    to = _CENT if amount == 0 or amount >= 1 else _TENTH_OF_A_CENT
    return f"{amount.quantize(to, context=_ROUNDING):,}"


def number(amount: Decimal | None) -> float | None:
    """Return an amount for JSON, to a millionth, None where it is not known."""
    return None if amount is None else float(amount.quantize(_MILLIONTH, context=_ROUNDING))
