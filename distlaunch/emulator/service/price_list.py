"""A price list in the shape of Google's, with Google's words and units and made-up round prices.

What Google calls its SKUs was seen on bills and in programs that read the catalogue. Beside those
of training there are some that a program must not take for them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

VERTEX_AI = "C7E2-9256-1C43"
COMPUTE_ENGINE = "6F81-5844-456A"

_TITLES = {VERTEX_AI: "Vertex AI", COMPUTE_ENGINE: "Compute Engine"}
_SINCE = "2026-01-01T00:00:00Z"
_MILLION = 1_000_000

# Of each continent its regions with what Vertex AI's SKUs call them, and its prices in percent.
_PLACES = {
    "Americas": (
        100,
        {"us-central1": "Iowa", "us-east1": "South Carolina", "us-west1": "Oregon"},
    ),
    "EMEA": (110, {"europe-west1": "Belgium", "europe-west4": "Netherlands"}),
    "APAC": (120, {"asia-east1": "Taiwan", "asia-southeast1": "Singapore"}),
}
# Millionths of a dollar an hour: of a CPU, and of a GB of memory.
_FAMILIES = {
    "N1": (40_000, 5_000),
    "E2": (30_000, 4_000),
    "A2": (40_000, 5_000),
    "A3": (30_000, 3_000),
    "G2": (30_000, 3_000),
}
_GPUS = {
    "Tesla T4": 400_000,
    "Tesla V100": 2_500_000,
    "L4": 600_000,
    "Tesla A100": 3_000_000,
    "A100 80GB": 4_000_000,
    "H100 80GB": 10_000_000,
}
_OLD = ("N1", "E2")  # whose SKUs are "running" in their place
_FLEXIBLE = ("A2", "A3", "G2", "L4", "Tesla A100", "A100 80GB", "H100 80GB")
_FEE, _SPOT, _FLEX_START = 10, 30, 50  # percent of the price
_SSD, _DISK, _LOCAL_SSD = 170_000, 40_000, 80_000  # millionths of a dollar for a GiB and month
_HOUR, _GIB_HOUR, _GIB_MONTH = "h", "GiBy.h", "GiBy.mo"
_UNITS = {
    _HOUR: ("hour", "s", "second", 3_600.0),
    _GIB_HOUR: ("gibibyte hour", "By.s", "byte second", 2.0**30 * 3_600),
    _GIB_MONTH: ("gibibyte month", "By.s", "byte second", 2.0**30 * 30 * 24 * 3_600),
}


@dataclass(frozen=True, slots=True)
class _Item:
    """What is sold: its words, regions, unit, price in millionths of a dollar, and the rest."""

    words: str
    regions: tuple[str, ...]
    unit: str
    price: int
    group: str
    usage: str = "OnDemand"
    free: int = 0


@cache
def skus(service: str) -> tuple[dict[str, Any], ...] | None:
    """Return what a service sells, None where there is none of this id."""
    if service not in _TITLES:
        return None
    items = _vertex() if service == VERTEX_AI else _compute()
    return tuple(_sku(service, item) for item in items)


def _vertex() -> Iterator[_Item]:
    training = "Vertex AI: Training/Pipelines"
    everywhere: list[str] = []
    for percent, places in _PLACES.values():
        for region, place in places.items():
            everywhere.append(region)
            for part, unit, price, group in _parts(percent):
                old = part.startswith(_OLD)
                said = _predefined(part) if old else part.replace("Ram", "RAM")
                where = f"running in {place}" if old else f"in {place}"
                yield _Item(f"{training} on {said} {where}", (region,), unit, price, group)
                word = "Management" if old else "management"
                fee = f"{training} {word} fee on {part.replace('Ram', 'RAM')} in {place}"
                yield _Item(fee, (region,), unit, price * _FEE // 100, group)
                serving = f"Vertex AI: Online/Batch Prediction {said} running in {place}"
                yield _Item(serving, (region,), unit, price * 2, "Prediction")
    ssd = f"{training} on SSD backed PD Capacity"
    yield _Item(ssd, tuple(everywhere), _GIB_MONTH, _SSD, "SSD")
    disk = f"{training} on Storage PD Capacity"
    yield _Item(disk, tuple(everywhere), _GIB_MONTH, _DISK, "PDStandard")


def _compute() -> Iterator[_Item]:
    for continent, (percent, places) in _PLACES.items():
        regions, where = tuple(places), f"running in {continent}"
        for part, unit, price, group in _parts(percent):
            gpu = part.startswith("NVIDIA")
            said = part.replace("NVIDIA", "Nvidia") + " GPU" if gpu else _predefined(part)
            spot = f"{said} attached to Spot Preemptible VMs" if gpu else f"Spot Preemptible {said}"
            yield _Item(f"{said} {where}", regions, unit, price, group)
            yield _Item(
                f"{spot} {where}", regions, unit, price * _SPOT // 100, group, "Preemptible"
            )
            yield _Item(
                f"Commitment v1: {said} in {continent} for 1 Year",
                regions,
                unit,
                price * 60 // 100,
                group,
                "Commit1Yr",
            )
            if part.removeprefix("NVIDIA ").startswith(_FLEXIBLE):
                for mode, share in (("Defined Duration", _FLEX_START), ("Calendar Mode", 70)):
                    words = (
                        f"{said} attached to DWS {mode} VMs"
                        if gpu
                        else f"DWS {mode} {part.replace('Instance ', '')}"
                    )
                    yield _Item(f"{words} {where}", regions, unit, price * share // 100, group)
        yield from _local_disks(where, regions, _LOCAL_SSD * percent // 100)
        ssd = f"SSD backed PD Capacity in {continent}"
        yield _Item(ssd, regions, _GIB_MONTH, _SSD * percent // 100, "SSD")
        disk = f"Storage PD Capacity in {continent}"
        yield _Item(disk, regions, _GIB_MONTH, _DISK * percent // 100, "PDStandard", free=30)


def _local_disks(where: str, regions: tuple[str, ...], price: int) -> Iterator[_Item]:
    name, spot = "SSD backed Local Storage", "attached to Spot Preemptible VMs"
    for words, share, usage in (
        (name, 100, "OnDemand"),
        (f"{name} {spot}", _SPOT, "Preemptible"),
        (f"DWS Defined Duration {name}", _FLEX_START, "OnDemand"),
    ):
        yield _Item(
            f"{words} {where}", regions, _GIB_MONTH, price * share // 100, "LocalSSD", usage
        )


def _parts(percent: int) -> Iterator[tuple[str, str, int, str]]:
    """Give what machines consist of, with unit, price on a continent, and group."""
    for family, (core, memory) in _FAMILIES.items():
        yield f"{family} Instance Core", _HOUR, core * percent // 100, "CPU"
        yield f"{family} Instance Ram", _GIB_HOUR, memory * percent // 100, "RAM"
    for gpu, price in _GPUS.items():
        yield f"NVIDIA {gpu}", _HOUR, price * percent // 100, "GPU"


def _predefined(part: str) -> str:
    return part.replace("N1 Instance", "N1 Predefined Instance")


def _sku(service: str, item: _Item) -> dict[str, Any]:
    sku = _id(f"{service} {item.words} {item.regions}")
    is_local = len(item.regions) == 1
    return {
        "name": f"services/{service}/skus/{sku}",
        "skuId": sku,
        "description": item.words,
        "category": {
            "serviceDisplayName": _TITLES[service],
            "resourceFamily": "Compute" if service == COMPUTE_ENGINE else "ApplicationServices",
            "resourceGroup": item.group,
            "usageType": item.usage,
        },
        "serviceRegions": list(item.regions),
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": _expression(item),
                "currencyConversionRate": 1.0,
                "effectiveTime": _SINCE,
            }
        ],
        "serviceProviderName": "Google",
        "geoTaxonomy": {
            "type": "REGIONAL" if is_local else "MULTI_REGIONAL",
            "regions": list(item.regions),
        },
    }


def _expression(item: _Item) -> dict[str, Any]:
    told, base, base_told, factor = _UNITS[item.unit]
    rates = [(0, 0), (item.free, item.price)] if item.free else [(0, item.price)]
    return {
        "usageUnit": item.unit,
        "displayQuantity": 1.0,
        "tieredRates": [_rate(start, price) for start, price in rates],
        "usageUnitDescription": told,
        "baseUnit": base,
        "baseUnitDescription": base_told,
        "baseUnitConversionFactor": factor,
    }


def _rate(start: int, price: int) -> dict[str, Any]:
    units, rest = divmod(price, _MILLION)
    money = {"currencyCode": "USD", "units": str(units), "nanos": rest * 1_000}
    return {"startUsageAmount": float(start), "unitPrice": money}


def _id(text: str) -> str:
    """Return what looks like a SKU's id, always the same for the same text."""
    digest = hashlib.sha256(text.encode()).hexdigest().upper()
    return "-".join((digest[:4], digest[4:8], digest[8:12]))
