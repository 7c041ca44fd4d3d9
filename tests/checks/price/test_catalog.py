"""Google's price list: read in pages, cached for a day, and unknown if it cannot be read."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from datetime import datetime
from decimal import Decimal
from importlib.resources import files

import pytest
from fake_google import Refused, sku, tier

from distlaunch.checks.price.catalog import accelerator_items, classify, hourly_price
from distlaunch.google.client import connect

from .lists import BILLED, COMPUTE_ENGINE, TRAINING, VERTEX_AI

H100 = "NVIDIA_H100_80GB"
DAY = 24 * 3600
SKUS = f"services/{VERTEX_AI}/skus"


@pytest.fixture
def a3(job):
    return job("a3-highgpu-8g", H100, 8)


def listings(fake):
    return [request for request in fake.requests if request.path.endswith("/skus")]


def test_all_pages_are_read_as_google_documents_them(google, cost, a3):
    fake = google(skus=BILLED, page_size=2)
    assert cost(a3).unknown == ()
    assert {request.path for request in listings(fake)} == {f"/v1/{SKUS}"}
    params = [request.params for request in listings(fake)]
    assert [each.get("pageToken") for each in params] == [None, ["2"], ["4"], ["6"]]
    assert all(each["currencyCode"] == ["USD"] for each in params)

    documents = files("googleapiclient") / "discovery_cache/documents"
    described = json.loads((documents / "cloudbilling.v1.json").read_text())
    listing = described["resources"]["services"]["resources"]["skus"]["methods"]["list"]
    assert params[-1].keys() <= listing["parameters"].keys() | described["parameters"].keys()
    shapes = ("ListSkusResponse", "Sku", "PricingInfo", "PricingExpression")
    fields = {name for shape in shapes for name in described["schemas"][shape]["properties"]}
    assert set(re.findall(r"\w+", params[-1]["fields"][0])) <= fields


def test_a_list_is_cached_for_a_day(google, cost, a3, cache):
    def date_of(seconds):
        return datetime.fromtimestamp(seconds).astimezone().date()

    fake = google(skus=BILLED)
    first = cost(a3)
    [file] = cache.iterdir()
    source = f"prices from Google's Cloud Billing Catalog of {date_of(time.time())} (STANDARD)"
    assert first.lines()[1].startswith(source)
    written = time.time() - DAY + 600
    os.utime(file, (written, written))
    cached = cost(a3)
    assert (cached.an_hour, cached.date) == (first.an_hour, date_of(written))
    assert len(listings(fake)) == 1
    for written in (time.time() - DAY - 600, time.time() + 600):  # the latter by a wrong clock
        os.utime(file, (written, written))
        assert cost(a3) == first
    assert len(listings(fake)) == 3


def test_each_service_and_currency_has_its_list(google, cost, job, a3, cache):
    fake = google(skus=BILLED)
    cost(job("a3-highgpu-8g", H100, 8, strategy="SPOT"))
    in_euro = cost(a3, "currency: EUR\n")
    currencies = [request.params["currencyCode"] for request in listings(fake)]
    assert currencies == [["USD"], ["USD"], ["EUR"]]
    assert {file.name for file in cache.iterdir()} == {
        f"prices-{VERTEX_AI}-USD.json",
        f"prices-{COMPUTE_ENGINE}-USD.json",
        f"prices-{VERTEX_AI}-EUR.json",
    }
    assert in_euro.unknown == ("a3-highgpu-8g", H100)  # the list has dollars only


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}'])
def test_an_invalid_cache_is_replaced(google, cost, a3, cache, text):
    fake = google(skus=BILLED)
    cache.mkdir(parents=True)
    (cache / f"prices-{VERTEX_AI}-USD.json").write_text(text)
    assert [cost(a3).unknown for _ in range(2)] == [(), ()]
    assert len(listings(fake)) == 1


def test_a_list_is_used_without_a_cache(google, cost, a3, cache):
    cache.parent.mkdir()
    cache.write_text("a file in place of the folder")
    google(skus=BILLED)
    assert cost(a3).unknown == ()


def test_without_googles_list_the_price_is_an_estimate(google, cost, a3):
    google(answers={"/skus": Refused(503, "Later.")})
    result = cost(a3, timeout=0.5)
    assert result.unknown == ()
    assert result.is_estimate
    reason = "cloudbilling.googleapis.com answers 503 (Later)"
    assert f"Google's price list cannot be read: {reason}" in result.lines()[1]


def test_a_server_that_does_not_respond_is_given_up(google, cost, a3):
    is_over = threading.Event()
    google(answers={"/skus": lambda: is_over.wait(60)})
    line = cost(a3, timeout=0.1).lines()[1]
    is_over.set()
    assert "Google's price list cannot be read: no complete response within 0.1 s" in line


@pytest.mark.parametrize(
    "skus", ["no list", [None], [1], [{"description": None}], [{"serviceRegions": 3}], {"a": 1}]
)
def test_an_invalid_list_has_no_prices(google, cost, a3, skus):
    google(answers={"/skus": {"skus": skus}})
    assert cost(a3).unknown == ("a3-highgpu-8g", H100)


def test_without_a_region_there_is_no_call(google, offline, job):
    fake = google(skus=BILLED)
    request = job("a3-highgpu-8g", H100, 8, region="")
    first, remedy = offline(request, session=connect()).lines()
    assert first.startswith("unknown: the job has no region, and it is not in the list prices of ")
    assert "'REGION: {STANDARD: " in remedy
    assert fake.requests == []


SPOT = "attached to Spot Preemptible VMs running in Americas"
FLEX = "attached to DWS Defined Duration VMs running in Americas"


@pytest.mark.parametrize(
    ("description", "item"),
    [
        (f"{TRAINING}on N1 Predefined Instance Core running in Iowa", "standard core N1"),
        (f"{TRAINING}on NVIDIA Tesla T4 in Iowa", "standard gpu T4"),
        (f"{TRAINING}on Nvidia Tesla V100 GPU running in Las Vegas", "standard gpu V100"),
        (f"{TRAINING}Management fee on N1 Instance Core in Iowa", "fee core N1"),
        ("Spot Preemptible N1 Predefined Instance Core running in Americas", "spot core N1"),
        ("Spot Preemptible Compute optimized Ram running in Americas", "spot ram C2"),
        (f"Nvidia Tesla A100 80GB GPU {SPOT}", "spot gpu 80GB-A100"),
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


def test_each_gpu_has_an_item_of_its_own(known):
    names = [name for name in known.accelerators if name.startswith("NVIDIA_")]
    items = {frozenset(accelerator_items(name, "STANDARD")) for name in names}
    assert len(items) == len(names) > 10


def test_the_price_per_hour_is_of_the_only_paid_tier():
    assert hourly_price(sku("x", "7.3", "GiBy.mo"), "USD") == Decimal("0.01")
    free_first = sku("x", "0", tiers=[tier("0"), tier("2", start=30)])
    assert hourly_price(free_first, "USD") == 2


@pytest.mark.parametrize(
    "invalid",
    [
        {},
        sku("x", "0"),
        sku("x", "1", "mo"),
        sku("x", "", tiers=[tier("1"), tier("2", start=5)]),
        sku("x", "", tiers=[tier("1", "EUR")]),
        sku("x", "", tiers=[{"unitPrice": {"currencyCode": "USD", "units": "many"}}]),
    ],
)
def test_a_sku_without_a_single_price_has_none(invalid):
    assert hourly_price(invalid, "USD") is None
