"""What jobs cost, against bills that were paid and prices of a file's."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

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


@pytest.fixture
def cost(known, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def of(job, session=None, own=None):
        file = tmp_path / "distlaunch.prices.yaml"
        file.write_text(own or "")
        found = price.prices(job, session=session, file=file if own else None)
        return price.cost(job, known, found)

    return of


@pytest.mark.parametrize(
    ("strategy", "an_hour"), [("STANDARD", "101.542968"), ("FLEX_START", "52.030616")]
)
def test_a_job_costs_what_was_billed_for_it(job, listing, cost, strategy, an_hour):
    pool = PoolRequest("chief", 1, "a3-highgpu-8g", H100, 8, disk_type="pd-ssd", disk_gb=2_000)
    _, session = listing(BOTH)
    found = cost(job(pools=[pool], strategy=strategy, timeout=7_200), session)
    assert found.unknown == ()
    assert round(found.an_hour, 6) == Decimal(an_hour)
    assert found.up_to_timeout == 2 * found.an_hour
    has_no_price = strategy == "STANDARD"
    assert found.within == ("boot disks", "local SSDs")[: 1 if has_no_price else 2]
    assert found.without == (*(["local SSDs"] if has_no_price else []), "storage", "network")
    last = found.lines()[-1]
    if has_no_price:
        assert last.endswith(", with boot disks, without local SSDs, storage and network")
    else:
        assert last.endswith(", with boot disks and local SSDs, without storage and network")


def test_what_is_in_the_price_of_some_pools_only_is_told_with_them(job, listing, cost):
    _, session = listing(BOTH)
    pools = [
        PoolRequest("chief", 1, "a3-highgpu-8g", H100, 8),
        PoolRequest("parameter_servers", 2, "n1-standard-8"),
    ]
    found = cost(job(pools=pools), session, OWN)
    assert found.within == ("boot disks of chief",)
    assert found.without == (
        "boot disks of parameter servers",
        "local SSDs",
        "storage",
        "network",
    )
    assert found.as_json()["with"] == ["boot disks of chief"]
    own = cost(job(pools=pools), session, "us-central1: {STANDARD: {a3-highgpu-8g: 9}}")
    assert own.without == ("boot disks", "storage", "network")


def test_a_boot_disk_is_googles_default_where_the_job_says_none(job, listing, cost):
    _, session = listing(BOTH)
    pools = [
        PoolRequest("chief", 1, "a3-highgpu-8g", H100, 8, disk_type=kind, disk_gb=size)
        for kind, size in ((None, None), ("pd-ssd", 100), ("pd-ssd", 101), ("hyperdisk-x", 100))
    ]
    usual, said, larger, other = (cost(job(pools=[pool]), session) for pool in pools)
    assert usual == said
    assert larger.an_hour - said.an_hour == pytest.approx(Decimal("0.1955") / 730)
    assert other.an_hour < said.an_hour
    assert other.without == ("boot disks", "local SSDs", "storage", "network")


def test_one_price_that_is_not_known_leaves_the_whole_unknown(job, listing, cost):
    _, session = listing({VERTEX_AI: BILLED[VERTEX_AI]})
    found = cost(job("a3-highgpu-8g", H100, 8, strategy="FLEX_START"), session)
    assert (found.an_hour, found.up_to_timeout) == (None, None)
    assert found.unknown == ("a3-highgpu-8g", H100)
    assert found.lines() == (
        "unknown: Google's price list has no single price for it in us-central1",
        "say what you pay an hour in distlaunch.prices.yaml, as 'us-central1: {FLEX_START: "
        "{a3-highgpu-8g: PRICE, NVIDIA_H100_80GB: PRICE}}'",
    )


@pytest.mark.parametrize(
    "another",
    [
        sku("Vertex AI: Training/Pipelines on NVIDIA H100 80GB in Council Bluffs", "9"),
        sku("Vertex AI: Training/Pipelines on Nvidia H100 80GB GPU running in Iowa", "11.2660332"),
    ],
)
def test_two_skus_for_one_thing_are_no_price(job, listing, cost, another):
    _, session = listing({VERTEX_AI: [*BILLED[VERTEX_AI], another]})
    found = cost(job("a3-highgpu-8g", H100, 8), session)
    assert found.unknown == (H100,)
    assert round(found.at_least, 4) == Decimal("10.9059")  # the machine and its disk
    first, _, unknown, _ = found.lines()
    assert first.startswith("at least 10.91 USD an hour (chief at least 10.91); at least ")
    assert unknown.startswith("unknown for NVIDIA_H100_80GB: ")


def test_a_pool_is_as_many_machines_and_accelerators_as_it_has(job, cost):
    pools = [
        PoolRequest("chief", 1, "n1-standard-8", T4, 1),
        PoolRequest("workers", 3, "n1-standard-8", T4, 2),
    ]
    found = cost(job(pools=pools, timeout=12 * 3600), own=OWN)
    assert [pool.an_hour for pool in found.pools] == [Decimal("0.77"), Decimal("3.36")]
    assert found.an_hour == Decimal("4.13")
    assert found.lines() == (
        "4.13 USD an hour (chief 0.770, workers 3 x 1.12); 49.56 USD up to its timeout of 12 h",
        "by distlaunch.prices.yaml (STANDARD), without boot disks, storage and network",
    )


def test_trials_run_some_at_once_and_cost_all_of_them(job, cost):
    words = {"trials": 20, "trials_at_once": 3, "timeout": 5_400}
    found = cost(job("n1-standard-8", T4, 1, **words), own=OWN)
    assert found.an_hour == 3 * Decimal("0.77")
    assert found.up_to_timeout == 20 * Decimal("0.77") * Decimal("1.5")
    assert found.lines()[0] == (
        "2.31 USD an hour with 3 trials at once; 23.10 USD for 20 trials of up to 1 h 30 min"
    )
    few = cost(job("n1-standard-8", T4, 1, trials=2, trials_at_once=3), own=OWN)
    assert few.an_hour == 2 * Decimal("0.77")


def test_a_strategy_has_its_own_prices(job, cost):
    spot = cost(job("n1-standard-8", T4, 1, strategy="SPOT"), own=OWN)
    assert spot.an_hour == Decimal("0.225")
    flex = cost(job("n1-standard-8", T4, 1, strategy="FLEX_START"), own=OWN)
    assert flex.unknown == ("n1-standard-8", T4)
    elsewhere = cost(job("n1-standard-8", T4, 1, region="europe-west4"), own=OWN)
    assert elsewhere.unknown == ("n1-standard-8", T4)


def test_a_tpu_is_as_many_machines_as_its_chips_need(job, cost):
    pool = PoolRequest("chief", 1, "ct6e-standard-4t", topology="4x4")
    assert cost(job(pools=[pool], strategy="SPOT"), own=OWN).an_hour == 4 * 4


def test_own_prices_stand_before_googles(job, listing, cost):
    _, session = listing(BOTH)
    pools = [PoolRequest("chief", 1, "a3-highgpu-8g", H100, 8)]
    found = cost(job(pools=pools), session, f"us-central1: {{STANDARD: {{{H100}: 1}}}}")
    assert found.sources[0].startswith("Google's Cloud Billing Catalog of ")
    assert found.sources[1:] == ("distlaunch.prices.yaml",)
    assert round(found.an_hour, 4) == Decimal("18.9059")


def test_an_accelerator_that_a_machine_needs_is_not_free(job, listing, cost):
    _, session = listing(BOTH)
    assert cost(job("a3-highgpu-8g"), session).unknown == (H100,)


def test_a_machine_that_nobody_knows_has_no_price(job, listing, cost):
    _, session = listing(BOTH)
    found = cost(job("z9-standard-8"), session)
    assert (found.unknown, found.at_least) == (("z9-standard-8",), 0)


def test_offline_nothing_is_guessed(job, cost):
    found = cost(job("n1-standard-8", T4, 1))
    assert found.an_hour is None
    assert "Google is not asked" in found.lines()[0]
    plain = found.as_json()
    assert (plain["an_hour"], plain["known_an_hour"], plain["sources"]) == (None, None, [])


def test_it_is_plain_data_too(job, listing, cost):
    _, session = listing(BOTH)
    pools = [
        PoolRequest("chief", 1, "a3-highgpu-8g", H100, 8),
        PoolRequest("workers", 2, "n1-standard-8", T4, 1),
    ]
    plain = cost(job(pools=pools, timeout=3_600), session).as_json()
    assert json.loads(json.dumps(plain)) == plain
    assert (plain["an_hour"], plain["known_an_hour"]) == (None, 101.034133)
    assert plain["unknown"] == ["n1-standard-8", T4]
    assert [pool["an_hour"] for pool in plain["pools"]] == [101.034133, None]
    assert plain["why"] == "Google's price list has no single price for it in us-central1"
    assert plain["date"] is not None
    alone = cost(job(pools=pools[:1]), session).as_json()
    assert (alone["an_hour"], alone["unknown"], alone["why"]) == (101.034133, [], None)


AMOUNTS = some.integers(1, 2**63)


@settings(max_examples=40)
@given(some.data())
def test_whatever_is_asked_for_is_told(data):
    whole = data.draw(some.lists(AMOUNTS, min_size=4, max_size=4))
    pool = PoolRequest("chief", whole[0], "n1-standard-8", T4, whole[1])
    job = JobRequest("n", "p", REGION, (pool,), timeout=whole[2], trials=whole[3], trials_at_once=2)
    amount = data.draw(some.decimals(0, 10**9, places=9))
    found = price.Prices(REGION, "STANDARD", own={"n1-standard-8": amount, T4: amount})
    cost = price.cost(job, machine_catalogue.load(None), found)
    first, _ = cost.lines()
    assert "USD an hour" in first
    assert cost.as_json()["up_to_timeout"] >= 0
