"""What Google bills a job for, and by which of its SKUs.

A job of strategy STANDARD is billed by Vertex AI's own SKUs; one on Spot VMs or with FLEX_START by
Compute Engine's, with a management fee of Vertex AI's on top
(https://cloud.google.com/vertex-ai/pricing, "custom-trained models"). The names are those of bills
and of the Cloud Billing Catalog (https://cloud.google.com/skus).
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.job.machine_catalogue import MachineType
    from distlaunch.job.model import Strategy

VERTEX_AI, COMPUTE_ENGINE = "C7E2-9256-1C43", "6F81-5844-456A"

SERVICES: Mapping[Strategy, Sequence[str]] = {
    "STANDARD": (VERTEX_AI,),
    "SPOT": (VERTEX_AI, COMPUTE_ENGINE),
    "FLEX_START": (VERTEX_AI, COMPUTE_ENGINE),
}
"""Whose SKUs a job is billed by."""

HOURS_A_MONTH = 730
"""By which Google divides the price of a month."""

_WAYS: Mapping[Strategy, Sequence[str]] = {
    "STANDARD": ("standard",),
    "SPOT": ("spot", "fee"),
    "FLEX_START": ("flex", "fee"),
}
_LOCAL_SSD_GB = {
    "a2-ultragpu-1g": 375,
    "a2-ultragpu-2g": 750,
    "a2-ultragpu-4g": 1_500,
    "a2-ultragpu-8g": 3_000,
    "a3-highgpu-1g": 750,
    "a3-highgpu-2g": 1_500,
    "a3-highgpu-4g": 3_000,
    "a3-highgpu-8g": 6_000,
    "a3-megagpu-8g": 6_000,
}  # that comes with the machine; Compute Engine bills it, Vertex AI has no SKU for it
_ALL_WITH_LOCAL_SSD = {"A3", "A3MEGA", "A3ULTRA", "A4", "A4X", "G4"}  # of these families
_BILLED_AS = {
    "A3PLUS": "A3MEGA",
    "COMPUTEOPTIMIZED": "C2",
    "MEMORYOPTIMIZED": "M1",
}
_DISKS = {"SSD backed": "pd-ssd", "Balanced": "pd-balanced", "Storage": "pd-standard"}

_IN = r"(?: running)? in .+"
_CORE = (
    r"(?P<family>[a-z]+[0-9]+[a-z]*(?: (?:Mega|Ultra))?|Compute optimized|Memory-optimized)"
    r"(?: Predefined)?(?: Instance)? (?P<part>Core|Ram)"
)
_GPU = r"Nvidia (?P<gpu>[\w ]+?)(?: GPU)?"
_DISK = r"(?P<disk>SSD backed|Balanced|Storage) PD Capacity(?: in .+)?"
_LOCAL = r"(?P<local>SSD backed Local Storage)"
_TRAINING = "Vertex AI: Training/Pipelines "
_SPOT, _FLEX = "attached to Spot Preemptible VMs", "attached to DWS Defined Duration VMs"
_UNITS = {"h": 1, "GiBy.h": 1, "GiBy.mo": HOURS_A_MONTH}


def meaning(description: str) -> str | None:
    """Return what a SKU is for, as ``standard core N1``; None where it is nothing of a job's."""
    for pattern, way in _meanings():
        found = pattern.fullmatch(description)
        if found:
            return f"{way} {_thing(found.groupdict())}"
    return None


@cache
def _meanings() -> list[tuple[re.Pattern[str], str]]:
    """Return what descriptions look like; only who reads a list takes the time to make it."""
    return [
        (re.compile(pattern, re.ASCII | re.IGNORECASE), way)
        for pattern, way in (
            (rf"{_TRAINING}on (?:(?:{_CORE}|{_GPU}){_IN}|{_DISK})", "standard"),
            (rf"{_TRAINING}management fee on (?:{_CORE}|{_GPU}){_IN}", "fee"),
            (rf"Spot Preemptible {_CORE}{_IN}", "spot"),
            (rf"(?:{_GPU}|{_LOCAL}) {_SPOT}{_IN}", "spot"),
            (rf"DWS Defined Duration (?:{_CORE}|{_LOCAL}){_IN}", "flex"),
            (rf"{_GPU} {_FLEX}{_IN}", "flex"),
        )
    ]


def hourly(sku: Mapping[str, Any], currency: str) -> Decimal | None:
    """Return the price of one for an hour, None where it has no single one in the currency.

    Parameters
    ----------
    sku
        One of the Catalog's: ``pricingInfo[].pricingExpression`` says what it costs.
    """
    try:
        expression = sku["pricingInfo"][-1]["pricingExpression"]
        tiers = [_amount(tier["unitPrice"], currency) for tier in expression["tieredRates"]]
        hours = _UNITS[expression["usageUnit"]]
    except (ArithmeticError, KeyError, IndexError, TypeError, ValueError):
        return None
    prices = [price for price in tiers if price]
    return prices[0] / hours if len(prices) == 1 and prices[0] > 0 else None


def of_machine(name: str, kind: MachineType, strategy: Strategy) -> dict[str, float] | None:
    """Return how much of what a machine without its accelerators is, None where that is unknown.

    Parameters
    ----------
    name, kind
        The machine type.
    """
    if kind.has_tpu or not kind.cpus or not kind.memory_gb:
        return None
    family = _family(kind.family)
    billed = _BILLED_AS.get(family, family)
    ways = _WAYS[strategy]
    items: dict[str, float] = {}
    for way in ways:
        items |= {f"{way} core {billed}": kind.cpus, f"{way} ram {billed}": kind.memory_gb}
    if strategy == "STANDARD":
        return items
    if name in _LOCAL_SSD_GB:
        return items | {f"{ways[0]} local-ssd": _LOCAL_SSD_GB[name]}
    return None if family in _ALL_WITH_LOCAL_SSD else items


def has_local_ssd(name: str, kind: MachineType) -> bool:
    """Whether a machine comes with local SSDs, however large."""
    return name in _LOCAL_SSD_GB or _family(kind.family) in _ALL_WITH_LOCAL_SSD


def of_accelerator(name: str, strategy: Strategy) -> dict[str, float]:
    """Return what one accelerator is."""
    return {f"{way} gpu {_gpu(name)}": 1 for way in _WAYS[strategy]}


def of_disk(kind: str, size: int) -> dict[str, float]:
    """Return what a boot disk is, which is Vertex AI's whatever the strategy; size in GB."""
    return {f"standard disk {kind}": size}


def _thing(found: Mapping[str, str | None]) -> str:
    if found.get("family"):
        family = _family(str(found["family"]))
        return f"{str(found['part']).lower()} {_BILLED_AS.get(family, family)}"
    if found.get("gpu"):
        return f"gpu {_gpu(str(found['gpu']))}"
    if found.get("disk"):
        written = str(found["disk"]).lower()
        return "disk " + next(kind for name, kind in _DISKS.items() if name.lower() == written)
    return "local-ssd"


def _family(name: str) -> str:
    return re.sub(r"[ _-]", "", name).upper()


def _gpu(name: str) -> str:
    """Return an accelerator's name as neither Vertex AI nor a SKU has it, but both lead to."""
    words = set(re.split(r"[ _]+", name.upper())) - {"NVIDIA", "TESLA", "40GB"}
    return "-".join(sorted("MEGA" if word == "PLUS" else word for word in words))


def _amount(money: Mapping[str, Any], currency: str) -> Decimal:
    """Return an amount of google.type.Money's: whole units as text, and billionths."""
    if money["currencyCode"] != currency:
        raise ValueError(money["currencyCode"])
    return int(money.get("units") or 0) + Decimal(int(money.get("nanos") or 0)).scaleb(-9)
