"""The prices of jobs, compared with bills that were paid and with a price file."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlaunch.checks import price
from distlaunch.checks.request_view import JobRequest, PoolRequest
from distlaunch.job import machine_catalogue

from .lists import BILLED, COMPUTE_ENGINE, DISTRACTORS, REGION, VERTEX_AI, sku

H100, T4 = "NVIDIA_H100_80GB", "NVIDIA_TESLA_T4"
BOTH = {service: DISTRACTORS[service] + BILLED[service] for service in (VERTEX_AI, COMPUTE_ENGINE)}
OWN = """\
us-central1:
  STANDARD: {n1-standard-8: 0.42, NVIDIA_TESLA_T4: 0.35}
  SPOT: {n1-standard-8: 0.1, NVIDIA_TESLA_T4: 0.125, ct6e-standard-4t: 4}
"""


def a3(disk_type=None, disk_gb=None):
    return PoolRequest("chief", 1, "a3-highgpu-8g", H100, 8, disk_type=disk_type, disk_gb=disk_gb)


@pytest.fixture
def billed(google, cost):
    google(skus=BOTH)
    return cost


@pytest.mark.parametrize(
    ("strategy", "amount"), [("STANDARD", "101.542968"), ("FLEX_START", "51.373082")]
)
def test_a_job_costs_what_was_billed_for_it(job, billed, strategy, amount):
    """The bill of the FLEX_START job had 0.657534 USD an hour for local SSDs, too."""
    result = billed(job(pools=[a3("pd-ssd", 2_000)], strategy=strategy, timeout=7_200))
    assert result.unknown == ()
    assert round(result.an_hour, 6) == Decimal(amount)
    assert result.up_to_timeout == 2 * result.an_hour
    assert result.lines()[-1].endswith(
        "; including boot disks, not including local SSDs, storage, network"
    )


def test_boot_disks_are_included_with_the_prices_of_google(job, billed):
    disks = (None, None), ("pd-ssd", 100), ("pd-ssd", 101), ("hyperdisk-x", 100)
    default, explicit, larger, unknown = (billed(job(pools=[a3(*disk)])) for disk in disks)
    assert default == explicit
    assert larger.an_hour - explicit.an_hour == pytest.approx(Decimal("0.1955") / 730)
    assert unknown.an_hour < explicit.an_hour
    mixed = billed(job(pools=[a3(), PoolRequest("workers", 2, "n1-standard-8")]), OWN)
    for result in (unknown, mixed):
        assert result.not_included == ("boot disks", "local SSDs", "storage", "network")


@pytest.mark.parametrize(
    "another",
    [
        sku("Vertex AI: Training/Pipelines on NVIDIA H100 80GB in Council Bluffs", "9"),
        sku("Vertex AI: Training/Pipelines on Nvidia H100 80GB GPU running in Iowa", "11.2660332"),
    ],
)
def test_an_ambiguous_price_makes_the_total_unknown(job, google, cost, another):
    google(skus={VERTEX_AI: [*BILLED[VERTEX_AI], another]})
    result = cost(job(pools=[a3()]))
    assert (result.an_hour, result.up_to_timeout, result.unknown) == (None, None, (H100,))
    assert round(result.known_an_hour, 4) == Decimal("10.9059")  # the machine and its disk
    first, _, unknown, remedy = result.lines()
    assert first.startswith("at least 10.91 USD an hour (chief at least 10.91); at least ")
    assert unknown == f"unknown for {H100}: Google's price list has no single price in {REGION}"
    assert remedy == (
        "add prices per hour to distlaunch.prices.yaml: 'us-central1: {STANDARD: "
        "{NVIDIA_H100_80GB: PRICE}}'"
    )


def test_a_pool_costs_as_much_as_its_machines_and_accelerators(job, offline):
    pools = [
        PoolRequest("chief", 1, "n1-standard-8", T4, 1),
        PoolRequest("workers", 3, "n1-standard-8", T4, 2),
    ]
    result = offline(job(pools=pools, timeout=12 * 3600), OWN)
    assert [pool.an_hour for pool in result.pools] == [Decimal("0.77"), Decimal("3.36")]
    assert result.an_hour == Decimal("4.13")
    assert result.lines() == [
        "4.13 USD an hour (chief 0.770, workers 3 x 1.12); 49.56 USD up to its timeout of 12 h",
        "prices from distlaunch.prices.yaml (STANDARD); not including boot disks, local SSDs, "
        "storage, network",
    ]


def test_a_tuned_job_costs_all_of_its_trials(job, offline):
    trials = {"trials": 20, "trials_at_once": 3, "timeout": 5_400}
    result = offline(job("n1-standard-8", T4, 1, **trials), OWN)
    assert result.an_hour == 3 * Decimal("0.77")
    assert result.lines()[0] == (
        "2.31 USD an hour with 3 trials at once; 23.10 USD for 20 trials of up to 1 h 30 min"
    )
    few = offline(job("n1-standard-8", T4, 1, trials=2, trials_at_once=3), OWN)
    assert few.an_hour == 2 * Decimal("0.77")


def test_prices_are_of_a_strategy_and_a_region(job, offline):
    assert offline(job("n1-standard-8", T4, 1, strategy="SPOT"), OWN).an_hour == Decimal("0.225")
    flex = offline(job("n1-standard-8", T4, 1, strategy="FLEX_START"), OWN)
    elsewhere = offline(job("n1-standard-8", T4, 1, region="europe-west4"), OWN)
    assert flex.unknown == ("n1-standard-8", T4)
    assert elsewhere.sources[0].startswith("list prices of ")


def test_a_large_tpu_is_several_machines(job, offline):
    pool = PoolRequest("chief", 1, "ct6e-standard-4t", topology="4x4")
    assert offline(job(pools=[pool], strategy="SPOT"), OWN).an_hour == 4 * 4


def test_own_prices_override_those_of_google(job, billed):
    result = billed(job(pools=[a3()]), f"us-central1: {{STANDARD: {{{H100}: 1}}}}")
    assert result.sources[0].startswith("Google's Cloud Billing Catalog of ")
    assert result.sources[1:] == ("distlaunch.prices.yaml",)
    assert round(result.an_hour, 4) == Decimal("18.9059")


def test_a_missing_accelerator_and_an_unknown_machine_have_no_price(job, billed, offline):
    assert billed(job("a3-highgpu-8g")).unknown == (H100,)
    unknown = billed(job("z9-standard-8"))
    assert (unknown.unknown, unknown.known_an_hour) == (("z9-standard-8",), None)
    without_google = offline(job("z9-standard-8"))
    assert without_google.lines()[0].startswith("unknown: Google's price list was not read, and")


def test_a_cost_is_plain_data_too(job, billed):
    pools = [a3(), PoolRequest("workers", 2, "n1-standard-8", T4, 1)]
    plain = billed(job(pools=pools, timeout=3_600)).as_json()
    assert json.loads(json.dumps(plain)) == plain
    assert (plain["an_hour"], plain["known_an_hour"]) == (None, 101.034133)
    assert plain["unknown"] == ["n1-standard-8", T4]
    assert [pool["an_hour"] for pool in plain["pools"]] == [101.034133, None]
    assert plain["why"] == "Google's price list has no single price in us-central1"
    assert len(plain["date"]) == len("2026-11-21")
    alone = billed(job(pools=[a3()])).as_json()
    assert (alone["an_hour"], alone["unknown"], alone["why"]) == (101.034133, [], None)
    assert (len(alone["with"]), len(alone["without"])) == (1, 3)


AMOUNTS = st.integers(1, 2**63)


@settings(max_examples=40)
@given(st.lists(AMOUNTS, min_size=4, max_size=4), st.decimals(0, 10**9, places=9))
def test_every_number_of_machines_has_a_price(numbers, amount):
    replicas, count, timeout, trials = numbers
    pool = PoolRequest("chief", replicas, "n1-standard-8", T4, count)
    request = JobRequest(
        "n", "p", REGION, (pool,), timeout=timeout, trials=trials, trials_at_once=2
    )
    prices = price.PriceBook(REGION, "STANDARD", own={"n1-standard-8": amount, T4: amount})
    cost = price.estimate_cost(request, machine_catalogue.load(None), prices)
    first, _ = cost.lines()
    assert "USD an hour" in first
    assert cost.as_json()["up_to_timeout"] >= 0
