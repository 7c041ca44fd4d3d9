"""The items that SKUs of a price list are for."""

from __future__ import annotations

from decimal import Decimal

import pytest
from fake_google.prices import sku, tier

from distlaunch.checks.price.catalog import accelerator_items, classify, hourly_price

from .lists import TRAINING

SPOT = "attached to Spot Preemptible VMs running in Americas"
FLEX = "attached to DWS Defined Duration VMs running in Americas"


@pytest.mark.parametrize(
    ("description", "item"),
    [
        (f"{TRAINING}on N1 Predefined Instance Core running in Iowa", "standard core N1"),
        (f"{TRAINING}on A3 Instance RAM in Iowa", "standard ram A3"),
        (f"{TRAINING}on NVIDIA Tesla T4 in Iowa", "standard gpu T4"),
        (f"{TRAINING}on Nvidia Tesla V100 GPU running in Las Vegas", "standard gpu V100"),
        (f"{TRAINING}on SSD backed PD Capacity in Iowa", "standard disk pd-ssd"),
        (f"{TRAINING}Management fee on N1 Instance Core in Iowa", "fee core N1"),
        ("Spot Preemptible N1 Predefined Instance Core running in Americas", "spot core N1"),
        ("Spot Preemptible Compute optimized Ram running in Americas", "spot ram C2"),
        (f"Nvidia Tesla A100 80GB GPU {SPOT}", "spot gpu 80GB-A100"),
        (f"Nvidia Tesla A100 GPU {SPOT}", "spot gpu A100"),
        ("DWS Defined Duration A3Plus Core running in Americas", "flex core A3MEGA"),
        (f"Nvidia H100 80GB Mega GPU {FLEX}", "flex gpu 80GB-H100-MEGA"),
        (f"SSD backed Local Storage {SPOT}", None),
        ("Nvidia Tesla T4 GPU running in Americas", None),
        ("Spot Preemptible N1 Custom Instance Core running in Americas", None),
        ("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", None),
        (f"{TRAINING}on N1 Predefined Instance Core", None),
        (f"Fee: {TRAINING}on N1 Predefined Instance Core running in Iowa", None),
    ],
)
def test_a_description_has_one_item_or_none(description, item):
    assert classify(description) == item


@pytest.mark.parametrize("strategy", ["STANDARD", "SPOT", "FLEX_START"])
def test_each_gpu_has_an_item_of_its_own(known, strategy):
    names = [name for name in known.accelerators if name.startswith("NVIDIA_")]
    items = {frozenset(accelerator_items(name, strategy)) for name in names}
    assert len(items) == len(names) > 10


def test_the_price_per_hour_is_of_the_only_paid_tier():
    assert hourly_price(sku("x", "7.3", "GiBy.mo"), "USD") == Decimal("0.01")
    free_first = sku("x", "0", tiers=[tier("0"), tier("2", start=30)])
    assert hourly_price(free_first, "USD") == 2


@pytest.mark.parametrize(
    "invalid",
    [
        {},
        {"pricingInfo": "free"},
        sku("x", "0"),
        sku("x", "1", "mo"),
        sku("x", "1", ["h"]),
        sku("x", "", tiers=[tier("1"), tier("2", start=5)]),
        sku("x", "", tiers=[tier("1", "EUR")]),
        sku("x", "", tiers=[{"unitPrice": {"currencyCode": "USD", "units": "many"}}]),
    ],
)
def test_a_sku_without_a_single_price_has_none(invalid):
    assert hourly_price(invalid, "USD") is None
