"""A job on other machines, by price."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from distlaunch import price
from distlaunch.job.vertex.view import PoolRequest

from .conftest import REGION

T4, L4, V100, A100 = "NVIDIA_TESLA_T4", "NVIDIA_L4", "NVIDIA_TESLA_V100", "NVIDIA_TESLA_A100"
OWN = {
    "n1-standard-4": Decimal("0.25"),
    "n1-standard-8": Decimal("0.5"),
    "g2-standard-4": Decimal("0.2"),
    "a2-highgpu-1g": Decimal(1),
    T4: Decimal("0.4"),
    L4: Decimal("0.4"),
    V100: Decimal("2.5"),
    A100: Decimal(3),
}


@pytest.fixture
def compare(known):
    def run(job):
        prices = price.book.PriceBook(job.region, job.strategy, own=OWN)
        return price.compare_machines(job, known, prices, date(2026, 11, 21))

    return run


def machines(options):
    return {(option.machine, option.accelerator, option.accelerator_count) for option in options}


def test_a_job_with_gpus_is_compared_with_all_gpus_of_the_region(job, compare, known):
    options = compare(job("n1-standard-8", T4, 1))
    priced = [option for option in options if option.an_hour is not None]
    assert [(option.machine, option.accelerator, option.an_hour) for option in priced] == [
        ("g2-standard-4", L4, Decimal("0.6")),
        ("n1-standard-4", T4, Decimal("0.65")),
        ("n1-standard-8", T4, Decimal("0.9")),
        ("n1-standard-4", V100, Decimal("2.75")),
        ("n1-standard-8", V100, Decimal("3.0")),
        ("a2-highgpu-1g", A100, Decimal(4)),
    ]
    assert options[: len(priced)] == tuple(priced)
    assert [option.machine for option in options if option.is_own] == ["n1-standard-8"]
    for name, accelerator, count in machines(options):
        assert known.offers(REGION, accelerator)
        assert (count, known.machines[name].takes(accelerator, 1)) == (1, True)
        assert accelerator != "NVIDIA_TESLA_P100"  # retired
    four = machines(compare(job("n1-standard-8", T4, 4)))
    assert {("g2-standard-48", L4, 4), ("a2-highgpu-4g", A100, 4)} < four
    assert {count for *_, count in four} == {4}


def test_a_job_is_compared_with_the_accelerators_of_its_kind(job, compare, known):
    assert machines(compare(job())) == {
        (name, None, 0)
        for name, kind in known.machines.items()
        if not kind.needs_accelerator and not kind.has_tpu
    }
    flex_start = machines(compare(job("g2-standard-4", L4, 1, strategy="FLEX_START")))
    assert {accelerator for _, accelerator, _ in flex_start} <= set(known.flex_start)
    assert ("a2-highgpu-1g", A100, 1) in flex_start


def test_all_pools_with_the_chiefs_machine_change(job, compare):
    gpus = PoolRequest("chief", 1, "n1-standard-8", T4, 1)
    servers = PoolRequest("parameter_servers", 2, "n1-standard-4")
    options = compare(job(pools=[gpus, replace(gpus, role="workers", replicas=3), servers]))
    prices = {(option.machine, option.accelerator): option.an_hour for option in options}
    assert prices["n1-standard-8", T4] == 4 * Decimal("0.9") + 2 * Decimal("0.25")
    assert prices["g2-standard-4", L4] == 4 * Decimal("0.6") + 2 * Decimal("0.25")


def test_tpus_unknown_machines_and_unknown_regions_have_no_alternatives(job, compare):
    tpu = job(pools=[PoolRequest("chief", 1, "ct6e-standard-4t", topology="2x4")])
    unknown = job("z9-standard-8", T4, 1, region="mars-north1")
    for request in (tpu, job("cloud-tpu", "TPU_V2", 8), unknown):
        [option] = compare(request)
        assert option.is_own
    assert option.as_json()["cpus"] is None


def test_options_are_a_table_without_empty_columns_and_plain_data(job, compare):
    options = compare(job("n1-standard-8", T4, 1))[:3]
    assert str(price.format_options(options)) == (
        "      machine       accelerators  vCPUs  GB    an hour\n"
        "g2-standard-4        1 NVIDIA_L4      4  16  0.600 USD\n"
        "n1-standard-4  1 NVIDIA_TESLA_T4      4  15  0.650 USD\n"
        "n1-standard-8  1 NVIDIA_TESLA_T4      8  30  0.900 USD  this job's"
    )
    plain = ["n1-standard-8", T4, 1, 8, 30, 0.9, "USD", True]
    assert list(options[2].as_json().values()) == plain
    without = price.format_options(compare(job("n1-standard-8")))
    assert list(without.rows[0][:4]) == ["machine", "vCPUs", "GB", "an hour"]
    assert " unknown\n" in str(without)
