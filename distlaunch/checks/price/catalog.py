"""Google's price list, the Cloud Billing Catalog (https://cloud.google.com/skus).

It has tens of thousands of SKUs. Those that a job may be billed for are cached for a day, for all
regions.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.background import BackgroundTask
from distlaunch.checks.price.skus import classify, hourly_price
from distlaunch.errors import RetryableError
from distlaunch.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from distlaunch.google.client import Session

PriceList = dict[str, dict[str, list[str]]]
"""Item → region → the price per hour of each SKU for it."""

_CACHE_VERSION = 1
_DAY = 24 * 3600  # seconds
_FIELDS = (
    "nextPageToken,"
    "skus(description,serviceRegions,pricingInfo/pricingExpression(usageUnit,tieredRates))"
)
_ALL_REGIONS = "global"


@dataclass(frozen=True, slots=True)
class Rates:
    """The prices per hour in a region, by item, and the day of the list."""

    hourly: Mapping[str, Decimal]
    date: date


def fetch_rates(
    session: Session, services: Sequence[str], region: str, currency: str, timeout: float
) -> Rates:
    """Return Google's prices in a region.

    Parameters
    ----------
    services
        The ids of the services with the SKUs.
    timeout
        Seconds for the whole list.

    Raises
    ------
    GoogleError
        If the list cannot be read.
    """

    def read() -> Rates:
        lists = [_load_list(session, service, currency, timeout) for service in services]
        hourly = {
            item: price for prices, _ in lists for item, price in _unambiguous(prices, region)
        }
        return Rates(hourly, min(day for _, day in lists))

    try:
        return BackgroundTask(read).result(timeout)
    except TimeoutError:
        raise RetryableError(f"no complete response within {timeout:g} s") from None


def _load_list(
    session: Session, service: str, currency: str, timeout: float
) -> tuple[PriceList, date]:
    """Return a service's prices and their day, from the cache or else from Google."""
    cache = _cache_file(service, currency) if session.endpoint is None else None
    cached = _read_cache(cache) if cache else None
    if cached is not None:
        return cached
    prices = _relevant_prices(_fetch_skus(session, service, currency, timeout), currency)
    if cache:
        with suppress(OSError):  # it is fetched again
            cache.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(cache, json.dumps({"version": _CACHE_VERSION, "listed": prices}))
    return prices, date.today()  # noqa: DTZ011 - the user's date


def _fetch_skus(session: Session, service: str, currency: str, timeout: float) -> Iterator[Any]:
    params: dict[str, str | int] = {"currencyCode": currency, "pageSize": 5000, "fields": _FIELDS}
    while True:
        page = session.call(
            "GET",
            "cloudbilling",
            f"services/{service}/skus",
            params=params,
            retry_deadline=timeout,
            timeout=(timeout / 2, timeout / 2),  # so that one retry fits in
        )
        skus = page.get("skus")
        yield from skus if isinstance(skus, list) else ()
        if not page.get("nextPageToken"):
            return
        params["pageToken"] = page["nextPageToken"]


def _relevant_prices(skus: Iterable[Any], currency: str) -> PriceList:
    prices: PriceList = {}
    for sku in skus:
        if not isinstance(sku, dict):
            continue
        item, regions = classify(str(sku.get("description"))), sku.get("serviceRegions")
        price = hourly_price(sku, currency) if item else None
        if item and price is not None and isinstance(regions, list):
            for region in regions:
                prices.setdefault(item, {}).setdefault(str(region), []).append(str(price))
    return prices


def _unambiguous(prices: PriceList, region: str) -> Iterator[tuple[str, Decimal]]:
    """Yield the items with exactly one price in a region, or else in all regions."""
    for item, by_region in prices.items():
        in_region = by_region.get(region) or by_region.get(_ALL_REGIONS) or []
        if len(in_region) == 1:
            yield item, Decimal(in_region[0])


def _cache_file(service: str, currency: str) -> Path | None:
    """Return the cache of a list, None for a user without a home directory."""
    try:
        folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(folder, "distlaunch", f"prices-{service}-{currency}.json")


def _read_cache(file: Path) -> tuple[PriceList, date] | None:
    """Return a list that was cached less than a day ago."""
    try:
        written = file.stat().st_mtime
        content = json.loads(file.read_bytes())
        is_current = content["version"] == _CACHE_VERSION
        prices: PriceList = content["listed"]
    except (KeyError, OSError, TypeError, ValueError):
        return None
    is_recent = 0 <= time.time() - written < _DAY
    return (prices, date.fromtimestamp(written)) if is_current and is_recent else None  # noqa: DTZ012
