"""Google's price list, the Cloud Billing Catalog, kept for a day.

It is long: tens of thousands of SKUs, in pages of some megabytes. What is kept of it is what jobs
are billed for, in all regions.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.background import BackgroundTask
from distlaunch.checks.price.skus import hourly, meaning
from distlaunch.errors import RetryableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from distlaunch.google.client import Params, Session

Listed = dict[str, dict[str, list[str]]]
"""What a SKU is for → region → what each of those SKUs costs an hour."""

_VERSION = 1  # of the kept files, and of what is taken from the list
_DAY = 24 * 3600  # seconds
# Of the seconds that there are for all: how long a page may be silent, and until when it is asked
# for once more.
_SILENT, _AGAIN = 0.4, 0.7
_FIELDS = (
    "nextPageToken,"
    "skus(description,serviceRegions,pricingInfo/pricingExpression(usageUnit,tieredRates))"
)
_EVERYWHERE = "global"


@dataclass(frozen=True, slots=True)
class Rates:
    """What things cost in a region.

    Parameters
    ----------
    hourly
        What one of a thing costs an hour, where exactly one SKU says so.
    date
        The day the list is of.
    """

    hourly: Mapping[str, Decimal]
    date: date


def rates(
    session: Session, services: Sequence[str], region: str, currency: str, patience: float
) -> Rates:
    """Return what Google lists for a region.

    Parameters
    ----------
    patience
        Seconds for all of it, within a page too: one may come in drops.

    Raises
    ------
    GoogleError
        If the Catalog cannot be read.
    """
    reader = _Reader(session, currency, patience, session.clock() + patience)
    reading = BackgroundTask(lambda: reader.rates(services, region))
    try:
        return reading.result(patience)
    except TimeoutError:
        raise reader.late() from None


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads lists until a moment of the session's clock."""

    session: Session
    currency: str
    patience: float
    until: float

    def rates(self, services: Sequence[str], region: str) -> Rates:
        days: list[date] = []
        hourly: dict[str, Decimal] = {}
        for service in services:
            listed, day = self._list(service)
            days.append(day)
            hourly |= _single(listed, region)
        return Rates(hourly, min(days))

    def late(self) -> RetryableError:
        return RetryableError(f"it was not there within {self.patience:g} seconds")

    def _list(self, service: str) -> tuple[Listed, date]:
        """Return the list that was read in the last day, or else read it."""
        kept = _file(service, self.currency) if self.session.endpoint is None else None
        found = _kept(kept) if kept else None
        if found is None:
            found = _listed(self._skus(service), self.currency), date.today()  # noqa: DTZ011
            if kept:
                _keep(kept, found[0])
        return found

    def _skus(self, service: str) -> Iterator[Any]:
        path = f"services/{service}/skus"
        params: dict[str, str | int] = {
            "currencyCode": self.currency,
            "pageSize": 5000,
            "fields": _FIELDS,
        }
        while True:
            page = self._page(path, params)
            skus = page.get("skus")
            yield from skus if isinstance(skus, list) else ()
            if not page.get("nextPageToken"):
                return
            params["pageToken"] = page["nextPageToken"]

    def _page(self, path: str, params: Params) -> dict[str, Any]:
        left = self.until - self.session.clock()
        if left <= 0:
            raise self.late()
        patience, silent = min(left, _AGAIN * self.patience), _SILENT * self.patience
        return self.session.call(
            "GET",
            "cloudbilling",
            path,
            params=params,
            retry_deadline=patience,
            timeout=(silent, silent),
        )


def _listed(skus: Iterable[Any], currency: str) -> Listed:
    """Take from a list what jobs are billed for."""
    found: Listed = {}
    for sku in skus:
        if not isinstance(sku, dict):
            continue
        thing, regions = meaning(str(sku.get("description"))), sku.get("serviceRegions")
        price = hourly(sku, currency) if thing else None
        if thing and price is not None and isinstance(regions, list):
            for region in regions:
                found.setdefault(thing, {}).setdefault(str(region), []).append(str(price))
    return found


def _single(listed: Listed, region: str) -> Iterator[tuple[str, Decimal]]:
    """Pick what has exactly one price in a region; one for everywhere counts where none is."""
    for thing, by_region in listed.items():
        prices = by_region.get(region) or by_region.get(_EVERYWHERE) or []
        if len(prices) == 1:
            yield thing, Decimal(prices[0])


def _file(service: str, currency: str) -> Path | None:
    """Return where a list is kept, None where this account has no place for that."""
    try:
        folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(folder, "distlaunch", f"prices-{service}-{currency}.json")


def _kept(file: Path) -> tuple[Listed, date] | None:
    """Return the list in a file and its day, None where there is none of the last day."""
    try:
        written = file.stat().st_mtime
        data = json.loads(file.read_bytes())
    except (OSError, RecursionError, ValueError):
        return None
    is_fresh = 0 <= time.time() - written < _DAY
    is_ours = isinstance(data, dict) and data.get("version") == _VERSION
    if not (is_fresh and is_ours and _is_listed(data.get("listed"))):
        return None
    return data["listed"], date.fromtimestamp(written)  # noqa: DTZ012 - the user's own day


def _is_listed(data: Any) -> bool:
    """Whether this is what was kept, whoever had the file in his hands since."""
    try:
        prices = [
            Decimal(price)
            for by_region in data.values()
            for found in by_region.values()
            for price in found
        ]
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        return False
    return all(price.is_finite() and price > 0 for price in prices)


def _keep(file: Path, listed: Listed) -> None:
    """Write a list as a whole or not at all; one that cannot be kept is read again."""
    text = json.dumps({"version": _VERSION, "listed": listed}, separators=(",", ":"))
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=file.parent, delete=False, encoding="utf-8"
        ) as part:
            try:
                part.write(text)
                part.close()
                Path(part.name).replace(file)
            except BaseException:
                Path(part.name).unlink(missing_ok=True)
                raise
