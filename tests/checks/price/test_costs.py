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
A3 = PoolRequest("chief", 1, "a3-highgpu-8g", H100, 8)


@pytest.fixture
def cost(known, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(job, session=None, own=None):
        file = tmp_path / "distlaunch.prices.yaml"
        file.write_text(own or "")
        prices = price.load_prices(job, session=session, file=file if own else None)
        return price.estimate_cost(job, known, prices)

    return run


@pytest.mark.parametrize(
    ("strategy", "billed"), [("STANDARD", "101.542968"), ("FLEX_START", "51.373082")]
)
def test_a_job_costs_what_was_billed_for_it(job, listing, cost, strategy, billed):
    """The bill of the FLEX_START job had 0.657534 USD an hour for local SSDs, too."""
    pool = PoolRequest("chief", 1, "a3-highgpu-8g", H100, 8, disk_type="pd-ssd", disk_gb=2_000)
    _, session = listing(BOTH)
    result = cost(job(pools=[pool], strategy=strategy, timeout=7_200), session)
    assert result.unknown == ()
    assert round(result.an_hour, 6) == Decimal(billed)
    assert result.up_to_timeout == 2 * result.an_hour
    assert result.lines()[-1].endswith(
        "; including boot disks, not including local SSDs, storage, network"
    )


def test_boot_disks_are_included_with_the_prices_of_google(job, listing, cost):
    _, session = listing(BOTH)
    pools = [
        PoolRequest("chief", 1, "a3-highgpu-8g", H100, 8, disk_type=kind, disk_gb=size)
        for kind, size in ((None, None), ("pd-ssd", 100), ("pd-ssd", 101), ("hyperdisk-x", 100))
    ]
    default, explicit, larger, unknown = (cost(job(pools=[pool]), session) for pool in pools)
    assert default == explicit
    assert larger.an_hour - explicit.an_hour == pytest.approx(Decimal("0.1955") / 730)
    assert unknown.an_hour < explicit.an_hour
    mixed = cost(job(pools=[A3, PoolRequest("workers", 2, "n1-standard-8")]), session, OWN)
    for result in (unknown, mixed):
        assert result.not_included == ("boot disks", "local SSDs", "storage", "network")


@pytest.mark.parametrize(
    "another",
    [
        sku("Vertex AI: Training/Pipelines on NVIDIA H100 80GB in Council Bluffs", "9"),
        sku("Vertex AI: Training/Pipelines on Nvidia H100 80GB GPU running in Iowa", "11.2660332"),
    ],
)
def test_an_ambiguous_price_makes_the_total_unknown(job, listing, cost, another):
    _, session = listing({VERTEX_AI: [*BILLED[VERTEX_AI], another]})
    result = cost(job(pools=[A3]), session)
    assert (result.an_hour, result.up_to_timeout, result.unknown) == (None, None, (H100,))
    assert round(result.known_an_hour, 4) == Decimal("10.9059")  # the machine and its disk
    first, _, unknown, remedy = result.lines()
    assert first.startswith("at least 10.91 USD an hour (chief at least 10.91); at least ")
    assert unknown == (
        "unknown for NVIDIA_H100_80GB: Google's price list has no single price in us-central1"
    )
    assert remedy == (
        "add prices per hour to distlaunch.prices.yaml: 'us-central1: {STANDARD: "
        "{NVIDIA_H100_80GB: PRICE}}'"
    )


def test_a_pool_costs_as_much_as_its_machines_and_accelerators(job, cost):
    pools = [
        PoolRequest("chief", 1, "n1-standard-8", T4, 1),
        PoolRequest("workers", 3, "n1-standard-8", T4, 2),
    ]
    result = cost(job(pools=pools, timeout=12 * 3600), own=OWN)
    assert [pool.an_hour for pool in result.pools] == [Decimal("0.77"), Decimal("3.36")]
    assert result.an_hour == Decimal("4.13")
    assert result.lines() == (
        "4.13 USD an hour (chief 0.770, workers 3 x 1.12); 49.56 USD up to its timeout of 12 h",
        "prices from distlaunch.prices.yaml (STANDARD); not including boot disks, local SSDs, "
        "storage, network",
    )


def test_a_tuned_job_costs_all_of_its_trials(job, cost):
    trials = {"trials": 20, "trials_at_once": 3, "timeout": 5_400}
    result = cost(job("n1-standard-8", T4, 1, **trials), own=OWN)
    assert result.an_hour == 3 * Decimal("0.77")
    assert result.up_to_timeout == 20 * Decimal("0.77") * Decimal("1.5")
    assert result.lines()[0] == (
        "2.31 USD an hour with 3 trials at once; 23.10 USD for 20 trials of up to 1 h 30 min"
    )
    few = cost(job("n1-standard-8", T4, 1, trials=2, trials_at_once=3), own=OWN)
    assert few.an_hour == 2 * Decimal("0.77")


def test_prices_are_of_a_strategy_and_a_region(job, cost):
    assert cost(job("n1-standard-8", T4, 1, strategy="SPOT"), own=OWN).an_hour == Decimal("0.225")
    flex = cost(job("n1-standard-8", T4, 1, strategy="FLEX_START"), own=OWN)
    elsewhere = cost(job("n1-standard-8", T4, 1, region="europe-west4"), own=OWN)
    assert flex.unknown == elsewhere.unknown == ("n1-standard-8", T4)


def test_a_large_tpu_is_several_machines(job, cost):
    pool = PoolRequest("chief", 1, "ct6e-standard-4t", topology="4x4")
    assert cost(job(pools=[pool], strategy="SPOT"), own=OWN).an_hour == 4 * 4


def test_own_prices_override_those_of_google(job, listing, cost):
    _, session = listing(BOTH)
    result = cost(job(pools=[A3]), session, f"us-central1: {{STANDARD: {{{H100}: 1}}}}")
    assert result.sources[0].startswith("Google's Cloud Billing Catalog of ")
    assert result.sources[1:] == ("distlaunch.prices.yaml",)
    assert round(result.an_hour, 4) == Decimal("18.9059")


def test_a_missing_accelerator_and_an_unknown_machine_have_no_price(job, listing, cost):
    _, session = listing(BOTH)
    assert cost(job("a3-highgpu-8g"), session).unknown == (H100,)
    unknown = cost(job("z9-standard-8"), session)
    assert (unknown.unknown, unknown.known_an_hour) == (("z9-standard-8",), None)
    offline = cost(job("n1-standard-8", T4, 1))
    assert offline.lines()[0] == "unknown: Google's price list was not read"


def test_a_cost_is_plain_data_too(job, listing, cost):
    _, session = listing(BOTH)
    pools = [A3, PoolRequest("workers", 2, "n1-standard-8", T4, 1)]
    plain = cost(job(pools=pools, timeout=3_600), session).as_json()
    assert json.loads(json.dumps(plain)) == plain
    assert (plain["an_hour"], plain["known_an_hour"]) == (None, 101.034133)
    assert plain["unknown"] == ["n1-standard-8", T4]
    assert [pool["an_hour"] for pool in plain["pools"]] == [101.034133, None]
    assert plain["why"] == "Google's price list has no single price in us-central1"
    assert len(plain["date"]) == len("2026-11-21")
    alone = cost(job(pools=[A3]), session).as_json()
    assert (alone["an_hour"], alone["unknown"], alone["why"]) == (101.034133, [], None)
    assert (alone["with"], alone["without"]) == (
        ["boot disks"],
        ["local SSDs", "storage", "network"],
    )


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
