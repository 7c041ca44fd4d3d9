"""The emulator's price list: made-up prices under Google's names, in Google's shape."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import pytest

from distlaunch.emulator.service.price_list import COMPUTE_ENGINE, VERTEX_AI, skus

from .discovery import misfits

TRAINING = "Vertex AI: Training/Pipelines"


def path(service_id: str) -> str:
    return f"/v1/services/{service_id}/skus"


@cache
def listed(service_id: str) -> dict[str, dict]:
    return {each["description"]: each for each in skus(service_id) or ()}


@pytest.mark.parametrize("service_id", [VERTEX_AI, COMPUTE_ENGINE])
def test_pages_give_every_sku_once_in_google_s_shape(service, service_id):
    found, token, pages = [], "", 0
    while pages == 0 or token:
        query = f"?currencyCode=USD&pageSize=5000&pageToken={token}"
        told = service.call("GET", path(service_id) + query).json
        assert misfits("cloudbilling.v1", "GET", path(service_id), told) == []
        found += told["skus"]
        token, pages = told.get("nextPageToken", ""), pages + 1
    assert pages > 1
    assert found == list(skus(service_id))
    assert len({each["skuId"] for each in found}) == len(found)
    assert all(re.fullmatch(r"([0-9A-F]{4}-){2}[0-9A-F]{4}", each["skuId"]) for each in found)


def test_another_service_or_currency_is_refused(service):
    assert service.call("GET", path("0000-0000-0000")).status == 404
    assert service.call("GET", f"{path(VERTEX_AI)}?currencyCode=EUR").status == 400


@pytest.mark.parametrize(
    ("service_id", "words"),
    [
        (VERTEX_AI, f"{TRAINING} on NVIDIA H100 80GB in Iowa"),
        (VERTEX_AI, f"{TRAINING} on A3 Instance Core in Iowa"),
        (VERTEX_AI, f"{TRAINING} on A3 Instance RAM in Iowa"),
        (VERTEX_AI, f"{TRAINING} on SSD backed PD Capacity"),
        (VERTEX_AI, f"{TRAINING} on E2 Instance Core running in Iowa"),
        (VERTEX_AI, f"{TRAINING} on E2 Instance Ram running in Iowa"),
        (VERTEX_AI, f"{TRAINING} on N1 Predefined Instance Core running in Iowa"),
        (VERTEX_AI, f"{TRAINING} on N1 Predefined Instance Ram running in Iowa"),
        (VERTEX_AI, f"{TRAINING} Management fee on N1 Instance Core in Iowa"),
        (VERTEX_AI, f"{TRAINING} management fee on NVIDIA H100 80GB in Iowa"),
        (VERTEX_AI, f"{TRAINING} management fee on A3 Instance RAM in Iowa"),
        (
            COMPUTE_ENGINE,
            "Nvidia H100 80GB GPU attached to DWS Defined Duration VMs running in Americas",
        ),
        (COMPUTE_ENGINE, "DWS Defined Duration A3 Core running in Americas"),
        (COMPUTE_ENGINE, "DWS Defined Duration A3 Ram running in Americas"),
        (COMPUTE_ENGINE, "DWS Defined Duration SSD backed Local Storage running in Americas"),
        (COMPUTE_ENGINE, "Spot Preemptible E2 Instance Ram running in Americas"),
        (COMPUTE_ENGINE, "Spot Preemptible N1 Predefined Instance Core running in Americas"),
        (
            COMPUTE_ENGINE,
            "Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas",
        ),
    ],
)
def test_names_that_were_seen_on_bills_are_there(service_id, words):
    assert "us-central1" in listed(service_id)[words]["serviceRegions"]


def test_nothing_is_sold_twice_in_a_region_under_the_same_words():
    sold = Counter(
        (words, region)
        for service_id in (VERTEX_AI, COMPUTE_ENGINE)
        for words, each in ((each["description"], each) for each in skus(service_id))
        for region in each["serviceRegions"]
    )
    assert set(sold.values()) == {1}


def test_prices_are_round_and_positive_behind_what_is_free():
    for service_id in (VERTEX_AI, COMPUTE_ENGINE):
        for words, each in listed(service_id).items():
            (info,) = each["pricingInfo"]
            *free, last = info["pricingExpression"]["tieredRates"]
            amounts = [(rate["unitPrice"]["units"], rate["unitPrice"]["nanos"]) for rate in free]
            assert amounts in ([], [("0", 0)]), words
            assert int(last["unitPrice"]["units"]) * 10**9 + last["unitPrice"]["nanos"] > 0, words
    h100 = listed(VERTEX_AI)[f"{TRAINING} on NVIDIA H100 80GB in Iowa"]
    rate = h100["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]
    assert rate["unitPrice"] == {"currencyCode": "USD", "units": "10", "nanos": 0}


def test_there_is_what_a_program_must_not_take_for_training():
    usages = {each["category"]["usageType"] for each in listed(COMPUTE_ENGINE).values()}
    assert usages == {"OnDemand", "Preemptible", "Commit1Yr"}
    assert any("Prediction" in words for words in listed(VERTEX_AI))
