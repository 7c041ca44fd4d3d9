"""The prices of jobs, by the bundled list and by a price file."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlaunch import price
from distlaunch.job import machine_catalogue
from distlaunch.job.vertex.view import JobRequest, PoolRequest

from .conftest import REGION

H100, T4 = "NVIDIA_H100_80GB", "NVIDIA_TESLA_T4"
OWN = """\
us-central1:
  STANDARD: {n1-standard-8: 0.42, NVIDIA_TESLA_T4: 0.35}
  SPOT: {n1-standard-8: 0.1, NVIDIA_TESLA_T4: 0.125, ct6e-standard-4t: 4}
"""


def test_a_pool_costs_as_much_as_its_machines_and_accelerators(job, cost):
    pools = [
        PoolRequest("chief", 1, "n1-standard-8", T4, 1),
        PoolRequest("workers", 3, "n1-standard-8", T4, 2),
    ]
    result = cost(job(pools=pools, timeout=12 * 3600), OWN)
    assert [pool.an_hour for pool in result.pools] == [Decimal("0.77"), Decimal("3.36")]
    assert result.an_hour == Decimal("4.13")
    assert result.lines() == [
        "4.13 USD an hour (chief 0.770, workers 3 x 1.12); 49.56 USD up to its timeout of 12 h",
        "prices from distlaunch.prices.yaml (STANDARD); not including boot disks, local SSDs, "
        "storage, network",
    ]


def test_a_tuned_job_costs_all_of_its_trials(job, cost):
    trials = {"trials": 20, "trials_at_once": 3, "timeout": 5_400}
    result = cost(job("n1-standard-8", T4, 1, **trials), OWN)
    assert result.an_hour == 3 * Decimal("0.77")
    assert result.lines()[0] == (
        "2.31 USD an hour with 3 trials at once; 23.10 USD for 20 trials of up to 1 h 30 min"
    )
    few = cost(job("n1-standard-8", T4, 1, trials=2, trials_at_once=3), OWN)
    assert few.an_hour == 2 * Decimal("0.77")


def test_prices_are_of_a_strategy_and_a_region(job, cost):
    assert cost(job("n1-standard-8", T4, 1, strategy="SPOT"), OWN).an_hour == Decimal("0.225")
    flex = cost(job("n1-standard-8", T4, 1, strategy="FLEX_START"), OWN)
    elsewhere = cost(job("n1-standard-8", T4, 1, region="europe-west4"), OWN)
    assert flex.unknown == ("n1-standard-8", T4)
    assert elsewhere.sources[0].startswith("list prices of ")
    tpu = PoolRequest("chief", 1, "ct6e-standard-4t", topology="4x4")  # several machines
    assert cost(job(pools=[tpu], strategy="SPOT"), OWN).an_hour == 4 * 4


def test_own_prices_override_the_list(job, cost):
    own = "us-central1: {STANDARD: {NVIDIA_TESLA_T4: 1}}"
    result = cost(job("n1-standard-8", T4, 1), own)
    assert result.sources[0].startswith("list prices of ")
    assert result.sources[1:] == ("distlaunch.prices.yaml",)
    assert result.an_hour == Decimal("1.15") * Decimal("0.379998") + 1
    euros = cost(job("n1-standard-8", T4, 1), f"currency: EUR\n{own}")
    assert euros.unknown == ("n1-standard-8",)  # another currency excludes the list


def test_a_missing_accelerator_and_an_unknown_machine_have_no_price(job, cost):
    missing = cost(job("z9-standard-8", T4, 1))
    assert missing.unknown == ("z9-standard-8",)
    assert missing.lines()[0].startswith("at least 0.403 USD an hour (chief at least 0.403); at ")
    assert missing.lines()[-1] == (
        "add prices per hour to distlaunch.prices.yaml: 'us-central1: {STANDARD: "
        "{z9-standard-8: PRICE}}'"
    )
    unknown = cost(job("z9-standard-8"))
    assert (unknown.unknown, unknown.known_an_hour) == (("z9-standard-8",), None)
    assert unknown.lines()[0].startswith("unknown: not in the list prices of ")
    assert cost(job("a3-highgpu-8g"), "currency: EUR").unknown == ("a3-highgpu-8g", H100)


def test_a_cost_is_plain_data_too(job, cost):
    pools = [
        PoolRequest("chief", 1, "a3-highgpu-8g", H100, 8),
        PoolRequest("workers", 2, "z9-standard-8", T4, 1),
    ]
    plain = cost(job(pools=pools, timeout=3_600)).as_json()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["an_hour"] is None
    assert plain["known_an_hour"] == pytest.approx(101.54 + 2 * 0.4025, rel=0.005)
    assert plain["unknown"] == ["z9-standard-8"]
    assert [pool["an_hour"] is None for pool in plain["pools"]] == [False, True]
    assert plain["why"].startswith("not in the list prices of ")
    assert len(plain["date"]) == len("2026-11-21")
    alone = cost(job(pools=pools[:1])).as_json()
    assert (alone["unknown"], alone["why"], len(alone["without"])) == ([], None, 4)


def test_a_job_on_a_persistent_resource_costs_nothing_itself(job, cost):
    result = cost(job("n1-standard-8", T4, 1, persistent_resource="warm"), OWN)
    assert (result.an_hour, result.as_json()["persistent_resource"]) == (0, "warm")
    assert result.lines() == [
        "none with the job: persistent resource warm is billed while up, also without jobs",
        "those of its machines that the job uses: 0.770 USD an hour ('distlaunch machines list')",
    ]
    unknown = cost(job("z9-standard-8", persistent_resource="warm")).lines()[1]
    assert unknown.startswith("those of its machines that the job uses: unknown (")


def test_a_reservation_is_billed_without_the_job_too(job, cost):
    name = "projects/p/zones/us-central1-a/reservations/gpus"
    pools = [PoolRequest("chief", 1, "n1-standard-8", T4, 1, reservation=name)]
    result = cost(job(pools=pools), OWN)
    assert result.an_hour == cost(job("n1-standard-8", T4, 1), OWN).an_hour
    assert result.lines()[-1] == (
        f"machines of reservation {name} are billed without the job, too, but for Vertex AI's fee "
        "of 15 %"
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
    prices = price.book.PriceBook(REGION, "STANDARD", own={"n1-standard-8": amount, T4: amount})
    cost = price.estimate_cost(request, machine_catalogue.load(None), prices)
    first, _ = cost.lines()
    assert "USD an hour" in first
    assert cost.as_json()["up_to_timeout"] >= 0
