"""What the SKUs of a price list are taken for."""

from __future__ import annotations

from decimal import Decimal

import pytest
from fake_google.prices import sku, tier

from distlaunch.checks.price.skus import hourly, meaning, of_accelerator, of_machine

from .lists import BILLED, DISTRACTORS, TRAINING

SPOT = "attached to Spot Preemptible VMs running in Americas"
FLEX = "attached to DWS Defined Duration VMs running in Americas"


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        (f"{TRAINING}on N1 Predefined Instance Core running in Iowa", "standard core N1"),
        (f"{TRAINING}on N1 Predefined Instance Ram running in Iowa", "standard ram N1"),
        (f"{TRAINING}on E2 Instance Core running in Salt Lake City", "standard core E2"),
        (f"{TRAINING}on A3 Instance RAM in Iowa", "standard ram A3"),
        (f"{TRAINING}on NVIDIA Tesla T4 in Iowa", "standard gpu T4"),
        (f"{TRAINING}on Nvidia Tesla V100 GPU running in Las Vegas", "standard gpu V100"),
        (f"{TRAINING}on SSD backed PD Capacity in Iowa", "standard disk pd-ssd"),
        (f"{TRAINING}on Storage PD Capacity", "standard disk pd-standard"),
        (f"{TRAINING}Management fee on N1 Instance Core in Iowa", "fee core N1"),
        (f"{TRAINING}management fee on NVIDIA L4 in Iowa", "fee gpu L4"),
        ("Spot Preemptible N1 Predefined Instance Core running in Americas", "spot core N1"),
        ("Spot Preemptible Compute optimized Ram running in Americas", "spot ram C2"),
        (f"Nvidia Tesla A100 80GB GPU {SPOT}", "spot gpu 80GB-A100"),
        (f"Nvidia Tesla A100 GPU {SPOT}", "spot gpu A100"),
        (f"SSD backed Local Storage {SPOT}", "spot local-ssd"),
        ("DWS Defined Duration A3Plus Core running in Americas", "flex core A3MEGA"),
        (f"Nvidia H100 80GB Mega GPU {FLEX}", "flex gpu 80GB-H100-MEGA"),
        ("N1 Predefined Instance Core running in Americas", None),
        ("N1 Custom Instance Core running in Americas", None),
        ("Spot Preemptible N1 Custom Instance Core running in Americas", None),
        ("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", None),
        ("Commitment v1: A3 Core in Americas for 1 Year", None),
        ("DWS Calendar Mode A3 Core running in Americas", None),
        (f"{TRAINING}on N1 Predefined Instance Core", None),
        (f"Fee: {TRAINING}on N1 Predefined Instance Core running in Iowa", None),
    ],
)
def test_what_a_sku_is_for(description, expected):
    assert meaning(description) == expected


def test_nothing_else_is_taken_for_what_was_billed():
    billed = {meaning(each["description"]) for skus in BILLED.values() for each in skus}
    others = [
        meaning(each["description"])
        for skus in DISTRACTORS.values()
        for each in skus
        if each["serviceRegions"] == ["us-central1"]
    ]
    assert None not in billed
    assert billed.isdisjoint(others)


@pytest.mark.parametrize("strategy", ["STANDARD", "SPOT", "FLEX_START"])
def test_each_accelerator_is_a_thing_of_its_own(known, strategy):
    names = [name for name in known.accelerators if name.startswith("NVIDIA_")]
    things = [frozenset(of_accelerator(name, strategy)) for name in names]
    assert len(set(things)) == len(names) > 10


def test_what_comes_with_a_machine_is_billed_by_compute_engine_alone(known):
    def items(name, strategy):
        return of_machine(name, known.machines[name], strategy)

    assert items("n1-standard-8", "STANDARD") == {"standard core N1": 8, "standard ram N1": 30}
    assert items("a2-ultragpu-1g", "STANDARD") == {"standard core A2": 12, "standard ram A2": 170}
    assert items("a2-ultragpu-1g", "SPOT")["spot local-ssd"] == 375
    assert items("n1-standard-8", "SPOT").keys() == {
        f"{way} {part} N1" for way in ("spot", "fee") for part in ("core", "ram")
    }
    assert items("a4-highgpu-8g", "SPOT") is None  # whose SSD has another name
    assert items("cloud-tpu", "STANDARD") is None


def test_the_price_of_an_hour():
    assert hourly(sku("x", "0.0293227"), "USD") == Decimal("0.0293227")
    assert hourly(sku("x", "7.3", "GiBy.mo"), "USD") == Decimal("0.01")
    free_first = sku("x", "0", tiers=[tier("0"), tier("2", start=30)])
    assert hourly(free_first, "USD") == 2


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"pricingInfo": []},
        {"pricingInfo": [{}]},
        {"pricingInfo": "free"},
        sku("x", "0"),
        sku("x", "-1"),
        sku("x", "1", "mo"),
        sku("x", "1", None),
        sku("x", "1", ["h"]),
        sku("x", "", tiers=[tier("1"), tier("2", start=5)]),
        sku("x", "", tiers=[tier("1", "EUR")]),
        sku("x", "", tiers=[{"unitPrice": {"currencyCode": "USD", "units": "many"}}]),
        sku("x", "", tiers=[{"unitPrice": {"currencyCode": "USD", "units": "NaN"}}]),
        sku("x", "", tiers=[{"unitPrice": {"currencyCode": "USD", "units": "Infinity"}}]),
        sku("x", "", tiers=[None]),
    ],
)
def test_what_is_no_single_price_is_none(broken):
    assert hourly(broken, "USD") is None
