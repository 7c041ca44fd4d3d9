"""What machines, accelerators and disks cost an hour, and who says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from distlaunch.checks.price import skus
from distlaunch.checks.price.file import FILE_NAME
from distlaunch.errors import GoogleError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.checks.price.catalog import Rates
    from distlaunch.checks.request_view import JobRequest
    from distlaunch.google.client import Session
    from distlaunch.job.machine_catalogue import MachineType
    from distlaunch.job.model import Strategy

PATIENCE = 8.0  # seconds that somebody who looks on waits for a price


@dataclass(frozen=True, slots=True)
class Quote:
    """What something costs an hour.

    Parameters
    ----------
    amount
        In the currency of the `Prices` that it is of.
    source
        Who says so.
    """

    amount: Decimal
    source: str


@dataclass(frozen=True, slots=True)
class Prices:
    """What things cost an hour in a region, by a strategy.

    Parameters
    ----------
    own
        The user's own prices, by machine type and accelerator.
    own_name
        The file with these.
    rates
        Google's price list, by what its SKUs are for; None where it is not known.
    why
        Why Google's list is not known.
    """

    region: str
    strategy: Strategy
    currency: str = "USD"
    own: Mapping[str, Decimal] = field(default_factory=dict)
    own_name: str = FILE_NAME
    rates: Rates | None = None
    why: str = ""

    @property
    def date(self) -> dt.date | None:
        """The day that Google's list is of, None without one of Google's own."""
        return self.rates.date if self.rates else None

    def of_machine(self, name: str, kind: MachineType | None) -> Quote | None:
        """Return what a machine costs without its accelerators, None where that is not known.

        Parameters
        ----------
        name
            The machine type.
        kind
            What the catalogue of machines knows of it.
        """
        if name in self.own:
            return Quote(self.own[name], self.own_name)
        return self._sum(skus.of_machine(name, kind, self.strategy) if kind else None)

    def of_accelerator(self, name: str) -> Quote | None:
        """Return what one accelerator costs, None where that is not known."""
        if name in self.own:
            return Quote(self.own[name], self.own_name)
        return self._sum(skus.of_accelerator(name, self.strategy))

    def of_disk(self, kind: str, size: int) -> Quote | None:
        """Return what a boot disk costs, None where that is not known; size in GB."""
        return self._sum(skus.of_disk(kind, size))

    def _sum(self, amounts: Mapping[str, float] | None) -> Quote | None:
        """Return what so much of each thing costs together, None if one of them has no price."""
        if self.rates is None or amounts is None:
            return None
        hourly = self.rates.hourly
        if not amounts.keys() <= hourly.keys():
            return None
        parts = (hourly[thing] * Decimal(str(amount)) for thing, amount in amounts.items())
        return Quote(sum(parts, Decimal(0)), _source(self.rates))


def prices(
    asked: JobRequest, *, session: Session | None, file: Path | None, patience: float = PATIENCE
) -> Prices:
    """Return what there is to know of prices for a job.

    Parameters
    ----------
    session
        What Google is asked through, None to leave it alone.
    file
        The user's own prices, which stand before Google's; None without.
    patience
        Seconds that Google may take for its list.

    Raises
    ------
    DistlaunchError
        If that file is broken, with its line and column.
    """
    from distlaunch.checks.price.file import PriceFile, read

    own = read(file) if file else PriceFile(FILE_NAME)
    rates, why = _google(asked, session, own.currency, patience)
    return Prices(
        region=asked.region,
        strategy=asked.strategy,
        currency=own.currency,
        own=own.of(asked.region, asked.strategy),
        own_name=own.name,
        rates=rates,
        why=why,
    )


def _google(
    asked: JobRequest, session: Session | None, currency: str, patience: float
) -> tuple[Rates | None, str]:
    if session is None:
        return None, "Google is not asked for its price list"
    if not asked.region:
        return None, "it is not known in which region"
    from distlaunch.checks.price.catalog import rates

    try:
        found = rates(session, skus.SERVICES[asked.strategy], asked.region, currency, patience)
    except GoogleError as problem:
        return None, f"Google's price list cannot be read: {problem}"
    return found, ""


def _source(rates: Rates) -> str:
    return f"Google's Cloud Billing Catalog of {rates.date.isoformat()}"
