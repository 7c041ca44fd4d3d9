"""The bundled list prices."""

from __future__ import annotations

from decimal import Decimal

import pytest

from distlaunch import price
from distlaunch.engines.vertex.job_resource import read_status
from distlaunch.job import machine_catalogue
from distlaunch.price.book import load_list_prices

T4, H100 = "NVIDIA_TESLA_T4", "NVIDIA_H100_80GB"

LISTED = load_list_prices()


@pytest.mark.parametrize(
    ("machine", "region", "published"),
    [
        # Google's page of Vertex AI's prices on 2026-10-07, and bills of 2025
        ("n1-standard-4", "us-central1", "0.21849885"),
        ("a3-highgpu-8g", "us-central1", "101.54"),
    ],
)
def test_derived_prices_agree_with_published_ones(machine, region, published):
    derived = LISTED.price(machine, region, "STANDARD")
    assert abs(derived / Decimal(published) - 1) < Decimal("0.005")


def test_a_job_has_an_estimate(job, cost):
    result = cost(job("n1-standard-8", T4, 1, timeout=7_200))
    assert (result.is_estimate, result.currency, result.unknown) == (True, "USD", ())
    assert result.an_hour == Decimal("1.15") * (Decimal("0.379998") + Decimal("0.35"))
    first, second = result.lines()
    assert first.startswith("about 0.839 USD an hour; about 1.68 USD up to its timeout of 2 h")
    assert second.startswith(f"estimate from list prices of {LISTED.date} (STANDARD); ")
    assert result.as_json()["date"] == LISTED.date.isoformat()


def test_the_price_of_a_machine_with_gpus_includes_them(job, cost):
    result = cost(job("a3-highgpu-8g", H100, 8))
    assert result.an_hour == LISTED.price("a3-highgpu-8g", "us-central1", "STANDARD")


def test_spot_has_the_management_fee_and_flex_start_no_price(job, cost):
    spot = cost(job("n1-standard-8", strategy="SPOT"))
    on_demand, spot_price = LISTED.prices["n1-standard-8"]["us-central1"]
    assert spot.an_hour == spot_price + on_demand * Decimal("0.15")
    assert cost(job("n1-standard-8", strategy="FLEX_START")).an_hour is None


def test_own_prices_override_the_list_and_another_currency_excludes_it(job, cost):
    own = "us-central1: {STANDARD: {n1-standard-8: 0.5}}"
    result = cost(job("n1-standard-8", T4, 1), own)
    assert result.an_hour == Decimal("0.5") + Decimal("0.35") * Decimal("1.15")
    euros = cost(job("n1-standard-8", T4, 1), f"currency: EUR\n{own}")
    assert euros.unknown == (T4,)


def test_most_machines_have_a_price_in_a_region_that_offers_them():
    known = machine_catalogue.load(None)
    missing = [
        name
        for name, kind in known.machines.items()
        if not kind.has_tpu and name not in LISTED.prices
    ]
    assert missing == ["a3-ultragpu-8g", "a4-highgpu-8g", "a4x-highgpu-4g"]
    for prices in LISTED.prices.values():
        assert all(0 < on_demand < 200 and spot > 0 for on_demand, spot in prices.values())


def test_the_cost_of_a_job_so_far(tmp_path):
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": "2"}
    job = {
        "name": "projects/1/locations/us-central1/customJobs/7",
        "state": "JOB_STATE_SUCCEEDED",
        "startTime": "2026-11-23T10:00:00Z",
        "endTime": "2026-11-23T11:30:00Z",
        "jobSpec": {"workerPoolSpecs": [pool]},
    }
    cost = price.cost_so_far(read_status(job, "p"), tmp_path)
    assert (cost["amount"], cost["an_hour"]) == (pytest.approx(0.655497), pytest.approx(0.436998))
    assert cost["is_estimate"]
    (tmp_path / price.book.FILE_NAME).write_text("us-central1: {STANDARD: {n1-standard-4: 1}}")
    own = price.cost_so_far(read_status(job, "p"), tmp_path)
    assert (own["amount"], own["is_estimate"]) == (3, False)


def test_the_cost_of_a_tuning_job_is_that_of_its_trials(tmp_path):
    times = {"startTime": "2026-11-23T10:00:00Z", "endTime": "2026-11-23T10:30:00Z"}
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1}
    job = {
        "name": "projects/1/locations/us-central1/hyperparameterTuningJobs/7",
        "state": "JOB_STATE_SUCCEEDED",
        "maxTrialCount": 5,
        "parallelTrialCount": 3,
        "trials": [times] * 4,
        "trialJobSpec": {"workerPoolSpecs": [pool]},
    }
    assert price.cost_so_far(read_status(job, "p"), tmp_path)["amount"] == pytest.approx(
        2 * 0.218499
    )
