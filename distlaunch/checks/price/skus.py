"""The items that Google bills a job for, and their SKUs.

A STANDARD job is billed by SKUs of Vertex AI; a SPOT or FLEX_START job by SKUs of Compute Engine,
and a management fee of Vertex AI (https://cloud.google.com/vertex-ai/pricing, "custom-trained
models"). An item is named like ``standard core N1`` or ``fee gpu T4``.
"""

from __future__ import annotations

import re
from decimal import Decimal
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
"""The services with the SKUs of a strategy."""

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
    amounts = {"core": kind.cpus, "ram": kind.memory_gb}
    return {
        f"{rate} {part} {family}": amount
        for rate in _RATES[strategy]
        for part, amount in amounts.items()
    }


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
