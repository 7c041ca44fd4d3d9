"""The prices per hour of machines, accelerators and disks, with their source."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from distlaunch.checks.price import skus
from distlaunch.checks.price.file import FILE_NAME, PriceFile, read_price_file
from distlaunch.errors import GoogleError
from distlaunch.job.yaml_document import display_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.checks.price.catalog import Rates
    from distlaunch.checks.request_view import JobRequest
    from distlaunch.google.client import Session
    from distlaunch.job.machine_catalogue import MachineType
    from distlaunch.job.model import Strategy

TIMEOUT = 8.0  # seconds for Google's list


@dataclass(frozen=True, slots=True)
class UnitPrice:
    """The price of one item for an hour, and its source: the user's file, or Google's list."""

    amount: Decimal
    source: str
    is_from_google: bool


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The prices in a region.

    Parameters
    ----------
    own, own_name
        The user's prices by machine type and accelerator, and their file.
    rates
        Google's prices; None if unknown.
    why_no_rates
        Why Google's prices are unknown.
    """

    region: str
    strategy: Strategy
    currency: str = "USD"
    own: Mapping[str, Decimal] = field(default_factory=dict)
    own_name: str = FILE_NAME
    rates: Rates | None = None
    why_no_rates: str = ""

    def of_machine(self, name: str, kind: MachineType | None) -> UnitPrice | None:
        """Return the price of a machine without its accelerators, None if unknown."""
        items = skus.machine_items(kind, self.strategy) if kind else None
        return self._own(name) or self._from_google(items)

    def of_accelerator(self, name: str) -> UnitPrice | None:
        """Return the price of one accelerator, None if unknown."""
        return self._own(name) or self._from_google(skus.accelerator_items(name, self.strategy))

    def of_disk(self, kind: str, gigabytes: int) -> UnitPrice | None:
        """Return the price of a boot disk, None if unknown."""
        return self._from_google(skus.disk_items(kind, gigabytes))

    def _own(self, name: str) -> UnitPrice | None:
        amount = self.own.get(name)
        return None if amount is None else UnitPrice(amount, self.own_name, is_from_google=False)

    def _from_google(self, items: Mapping[str, float] | None) -> UnitPrice | None:
        if self.rates is None or items is None or not items.keys() <= self.rates.hourly.keys():
            return None
        amounts = (self.rates.hourly[item] * Decimal(str(count)) for item, count in items.items())
        source = f"Google's Cloud Billing Catalog of {self.rates.date.isoformat()}"
        return UnitPrice(sum(amounts, Decimal(0)), source, is_from_google=True)


def load_prices(
    request: JobRequest, *, session: Session | None, file: Path | None, timeout: float = TIMEOUT
) -> PriceBook:
    """Return the prices for a job.

    Parameters
    ----------
    session
        Calls Google; None for the user's prices alone.
    file
        The user's prices, which override Google's; None without.
    timeout
        Seconds for Google's list.

    Raises
    ------
    DistlaunchError
        If that file is invalid, with line and column.
    """
    own = read_price_file(file) if file else PriceFile()
    rates, why = None, ""
    if session is None:
        why = "Google's price list was not read"
    elif not request.region:
        why = "the job has no region"
    else:
        from distlaunch.checks.price.catalog import fetch_rates

        services = skus.SERVICES[request.strategy]
        try:
            rates = fetch_rates(session, services, request.region, own.currency, timeout)
        except GoogleError as problem:
            why = f"Google's price list cannot be read: {problem}"
    own_prices = own.regions.get(request.region, {}).get(request.strategy, {})
    name = display_path(file) if file else FILE_NAME
    return PriceBook(request.region, request.strategy, own.currency, own_prices, name, rates, why)
