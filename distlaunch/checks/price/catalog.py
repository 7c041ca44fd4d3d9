"""Google's price list, the Cloud Billing Catalog (https://cloud.google.com/skus).

It has tens of thousands of SKUs. Those that a job may be billed for are cached for a day, for all
regions.

A STANDARD job is billed by SKUs of Vertex AI; a SPOT or FLEX_START job by SKUs of Compute Engine,
and a management fee of Vertex AI (https://cloud.google.com/vertex-ai/pricing, "custom-trained
models"). A billed item is named like ``standard core N1`` or ``fee gpu T4``.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch.background import BackgroundTask
from distlaunch.errors import RetryableError
from distlaunch.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from distlaunch.google.client import Session
    from distlaunch.job.machine_catalogue import MachineType
    from distlaunch.job.model import Strategy

PriceList = dict[str, dict[str, list[str]]]
"""Item → region → the price per hour of each SKU for it."""

_CACHE_KEY = "prices-1"  # changes with the shape of the content
_DAY = 24 * 3600  # seconds
_FIELDS = (
    "nextPageToken,"
    "skus(description,serviceRegions,pricingInfo/pricingExpression(usageUnit,tieredRates))"
)

_VERTEX_AI, _COMPUTE_ENGINE = "C7E2-9256-1C43", "6F81-5844-456A"
_RATES: Mapping[Strategy, Sequence[str]] = {
    "STANDARD": ("standard",),
    "SPOT": ("spot", "fee"),
    "FLEX_START": ("flex", "fee"),
}
_FAMILY_NAMES = {"A3PLUS": "A3MEGA", "COMPUTEOPTIMIZED": "C2", "MEMORYOPTIMIZED": "M1"}
_DISKS = {"ssd backed": "pd-ssd", "balanced": "pd-balanced", "storage": "pd-standard"}
_HOURS_PER_UNIT = {"h": 1, "GiBy.h": 1, "GiBy.mo": 730}  # a month as Google converts it

_CHARGES = {
    "Vertex AI: Training/Pipelines on": "standard",
    "Vertex AI: Training/Pipelines management fee on": "fee",
    "Spot Preemptible": "spot",
    "DWS Defined Duration": "flex",
}
_DESCRIPTION = re.compile(
    rf"""((?P<charge>{"|".join(_CHARGES).replace(" ", "[ ]")})[ ])?
    (
        (
            (?P<family>[a-z]+[0-9]+[a-z]*([ ](Mega|Ultra))?|Compute[ ]optimized|Memory-optimized)
            ([ ]Predefined)?([ ]Instance)?[ ](?P<part>Core|Ram)
            |
            Nvidia[ ](?P<gpu>[\w ]+?)([ ]GPU)?
            ([ ]attached[ ]to[ ](?P<attached>Spot[ ]Preemptible|DWS[ ]Defined[ ]Duration)[ ]VMs)?
        )
        ([ ]running)?[ ]in[ ].+
        |
        (?P<disk>SSD[ ]backed|Balanced|Storage)[ ]PD[ ]Capacity([ ]in[ ].+)?
    )""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)


class Rates(NamedTuple):
    """The prices per hour in a region, by item, and the day of the list."""

    hourly: Mapping[str, Decimal]
    date: date

    @property
    def source(self) -> str:
        """Their source, for a message."""
        return f"Google's Cloud Billing Catalog of {self.date.isoformat()}"


def fetch_rates(
    session: Session, strategy: Strategy, region: str, currency: str, timeout: float
) -> Rates:
    """Return Google's prices for a strategy in a region.

    GoogleError is raised if the list cannot be read completely in `timeout` seconds.
    """

    def read() -> Rates:
        services = (_VERTEX_AI,) if strategy == "STANDARD" else (_VERTEX_AI, _COMPUTE_ENGINE)
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
    file = f"prices-{service}-{currency}.json"
    cached = _read_cache(file) if session.endpoint is None else None
    if cached is not None:
        return cached
    prices = _relevant_prices(_fetch_skus(session, service, currency, timeout), currency)
    if session.endpoint is None:
        with suppress(OSError, RuntimeError):  # it is fetched again
            path = _cache_folder() / file
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, json.dumps({_CACHE_KEY: prices}))
    return prices, date.today()  # noqa: DTZ011 - the user's date


def _read_cache(file: str) -> tuple[PriceList, date] | None:
    """Return a list that was cached less than a day ago."""
    try:
        path = _cache_folder() / file
        written = path.stat().st_mtime
        prices: PriceList = json.loads(path.read_bytes())[_CACHE_KEY]
    except (KeyError, OSError, RuntimeError, TypeError, ValueError):
        return None
    is_recent = 0 <= time.time() - written < _DAY
    return (prices, date.fromtimestamp(written)) if is_recent else None  # noqa: DTZ012


def _cache_folder() -> Path:
    """Return the folder; RuntimeError is raised for a user without a home directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "distlaunch")


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
        in_region = by_region.get(region) or by_region.get("global") or []
        if len(in_region) == 1:
            yield item, Decimal(in_region[0])


def classify(description: str) -> str | None:
    """Return the item of a SKU, None if it is not for training."""
    match = _DESCRIPTION.fullmatch(description)
    charge = match and (match["charge"] or match["attached"])
    if not match or not charge:
        return None
    charge = next(name for text, name in _CHARGES.items() if text.lower() == charge.lower())
    if match["gpu"]:
        return f"{charge} gpu {_gpu(match['gpu'])}"
    if match["disk"]:
        return f"{charge} disk {_DISKS[match['disk'].lower()]}"
    return f"{charge} {match['part'].lower()} {_family(match['family'])}"


def hourly_price(sku: Mapping[str, Any], currency: str) -> Decimal | None:
    """Return the price per hour of a SKU of the Catalog, None unless it has exactly one."""
    try:
        expression = sku["pricingInfo"][-1]["pricingExpression"]
        tiers = [_amount(tier["unitPrice"], currency) for tier in expression["tieredRates"]]
        hours = _HOURS_PER_UNIT[expression["usageUnit"]]
    except (ArithmeticError, KeyError, IndexError, TypeError, ValueError):
        return None
    prices = [price for price in tiers if price]
    return prices[0] / hours if len(prices) == 1 and prices[0] > 0 else None


def machine_items(kind: MachineType, strategy: Strategy) -> dict[str, float] | None:
    """Return the items of a machine without its accelerators with their amounts, or None."""
    if kind.has_tpu or not kind.cpus or not kind.memory_gb:
        return None
    family = _family(kind.family)
    items = {f"core {family}": kind.cpus, f"ram {family}": kind.memory_gb}
    return {f"{rate} {item}": items[item] for rate in _RATES[strategy] for item in items}


def accelerator_items(name: str, strategy: Strategy) -> dict[str, float]:
    """Return the items of one accelerator."""
    return {f"{rate} gpu {_gpu(name)}": 1 for rate in _RATES[strategy]}


def disk_items(kind: str, gigabytes: int) -> dict[str, float]:
    """Return the items of a boot disk, which Vertex AI bills for each strategy."""
    return {f"standard disk {kind}": gigabytes}


def _family(name: str) -> str:
    family = re.sub(r"[ _-]", "", name).upper()
    return _FAMILY_NAMES.get(family, family)


def _gpu(name: str) -> str:
    """Normalise the name of a GPU, which Vertex AI and its SKUs write differently."""
    words = set(re.split(r"[ _]+", name.upper())) - {"NVIDIA", "TESLA", "40GB"}
    return "-".join(sorted("MEGA" if word == "PLUS" else word for word in words))


def _amount(money: Mapping[str, Any], currency: str) -> Decimal:
    """Return an amount of google.type.Money's: whole units as text, and billionths."""
    if money["currencyCode"] != currency:
        raise ValueError(money["currencyCode"])
    return int(money.get("units") or 0) + Decimal(int(money.get("nanos") or 0)).scaleb(-9)
