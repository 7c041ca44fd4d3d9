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


def test_derived_prices_agree_with_published_ones():
    # Google's page of Vertex AI's prices on 2026-10-07, and bills of 2025
    for machine, published in (("n1-standard-4", "0.21849885"), ("a3-highgpu-8g", "101.54")):
        derived = LISTED.price(machine, "us-central1", "STANDARD")
        assert abs(derived / Decimal(published) - 1) < Decimal("0.005")


def test_a_job_has_an_estimate(job, cost):
    result = cost(job("n1-standard-8", T4, 1, timeout=7_200))
    assert (result.is_estimate, result.currency, result.unknown) == (True, "USD", ())
    assert result.an_hour == Decimal("1.15") * (Decimal("0.379998") + Decimal("0.35"))
    first, second = result.lines()
    assert first.startswith("about 0.839 USD an hour; about 1.68 USD up to its timeout of 2 h")
    assert second.startswith(f"estimate from list prices of {LISTED.date} (STANDARD); ")
    assert result.as_json()["date"] == LISTED.date.isoformat()
    with_gpus = cost(job("a3-highgpu-8g", H100, 8))  # in the price of the machine
    assert with_gpus.an_hour == LISTED.price("a3-highgpu-8g", "us-central1", "STANDARD")


def test_spot_has_the_management_fee_and_flex_start_no_price(job, cost):
    spot = cost(job("n1-standard-8", strategy="SPOT"))
    on_demand, spot_price = LISTED.prices["n1-standard-8"]["us-central1"]
    assert spot.an_hour == spot_price + on_demand * Decimal("0.15")
    assert cost(job("n1-standard-8", strategy="FLEX_START")).an_hour is None


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


def test_the_cost_of_a_job_so_far_and_of_the_trials_of_a_tuning_job(tmp_path):
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": "2"}
    times = {"startTime": "2026-11-23T10:00:00Z", "endTime": "2026-11-23T11:30:00Z"}
    location = "projects/1/locations/us-central1"
    spec = {"workerPoolSpecs": [pool]}
    ended = {"state": "JOB_STATE_SUCCEEDED", **times}
    job = read_status({"name": f"{location}/customJobs/7", **ended, "jobSpec": spec}, "p")
    cost = price.cost_so_far(job, tmp_path)
    assert (cost["amount"], cost["an_hour"]) == (pytest.approx(0.655497), pytest.approx(0.436998))
    assert cost["is_estimate"]
    counts = {"maxTrialCount": 5, "parallelTrialCount": 3, "trials": [times] * 4}
    name = f"{location}/hyperparameterTuningJobs/7"
    tuning = {"name": name, "state": "JOB_STATE_SUCCEEDED", **counts, "trialJobSpec": spec}
    trials = price.cost_so_far(read_status(tuning, "p"), tmp_path)
    assert trials["amount"] == pytest.approx(4 * 0.655497)
    (tmp_path / price.book.FILE_NAME).write_text("us-central1: {STANDARD: {n1-standard-4: 1}}")
    own = price.cost_so_far(job, tmp_path)
    assert (own["amount"], own["is_estimate"]) == (3, False)
    (tmp_path / price.book.FILE_NAME).write_text("us-central1: {STANDARD: [")
    assert price.cost_so_far(job, tmp_path) is None
