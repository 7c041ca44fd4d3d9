"""A job on other machines, by price."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from distlaunch.checks import price
from distlaunch.checks.request_view import PoolRequest

from .lists import REGION

T4, L4, V100, A100 = "NVIDIA_TESLA_T4", "NVIDIA_L4", "NVIDIA_TESLA_V100", "NVIDIA_TESLA_A100"
OWN = {
    name: Decimal(amount)
    for name, amount in {
        "n1-standard-4": "0.25",
        "n1-standard-8": "0.5",
        "g2-standard-4": "0.2",
        "a2-highgpu-1g": "1",
        T4: "0.4",
        L4: "0.4",
        V100: "2.5",
        A100: "3",
    }.items()
}


@pytest.fixture
def offers(known, today):
    def of(job, day=today):
        found = price.Prices(job.region, job.strategy, own=OWN)
        return price.compare(job, known, found, day)

    return of


def names(offers):
    return {(each.machine, each.accelerator, each.count) for each in offers}


def test_a_job_with_gpus_runs_on_any_that_the_region_has(job, offers, known):
    found = offers(job("n1-standard-8", T4, 1))
    priced = [each for each in found if each.an_hour is not None]
    assert [(each.machine, each.accelerator, each.an_hour) for each in priced] == [
        ("g2-standard-4", L4, Decimal("0.6")),
        ("n1-standard-4", T4, Decimal("0.65")),
        ("n1-standard-8", T4, Decimal("0.9")),
        ("n1-standard-4", V100, Decimal("2.75")),
        ("n1-standard-8", V100, Decimal("3.0")),
        ("a2-highgpu-1g", A100, Decimal(4)),
    ]
    assert found[: len(priced)] == tuple(priced)
    assert [each.machine for each in found if each.is_own] == ["n1-standard-8"]
    for each in found:
        assert each.count == 1
        assert known.offers(REGION, each.accelerator)
        assert known.machines[each.machine].takes(each.accelerator, 1)


def test_what_is_withdrawn_is_offered_to_nobody(job, offers, today):
    before = {
        each.accelerator for each in offers(job("n1-standard-8", T4, 1), today.replace(2026, 9, 14))
    }
    after = {each.accelerator for each in offers(job("n1-standard-8", T4, 1))}
    assert before - after == {"NVIDIA_TESLA_P100"}


def test_as_many_accelerators_on_a_machine_as_now(job, offers):
    found = names(offers(job("n1-standard-8", T4, 4)))
    assert ("g2-standard-48", L4, 4) in found
    assert ("a2-highgpu-4g", A100, 4) in found
    assert {count for *_, count in found} == {4}


def test_a_job_without_accelerators_runs_where_none_is_needed(job, offers, known):
    found = offers(job())
    assert {each.accelerator for each in found} == {None}
    assert {each.machine for each in found} == {
        name
        for name, kind in known.machines.items()
        if not kind.needs_accelerator and not kind.has_tpu
    }


def test_flex_start_has_few_accelerators(job, offers, known):
    found = offers(job("g2-standard-4", L4, 1, strategy="FLEX_START"))
    assert {each.accelerator for each in found} <= set(known.flex_start)
    assert ("a2-highgpu-1g", A100, 1) in names(found)
    alone = offers(job("n1-standard-8", T4, 1, strategy="FLEX_START"))
    own = {each.is_own for each in alone if each.accelerator not in known.flex_start}
    assert own == {True}


def test_a_tpu_stays_what_it_is(job, offers):
    pool = PoolRequest("chief", 1, "ct6e-standard-4t", topology="2x4")
    found = names(offers(job(pools=[pool])))
    assert found == {("ct6e-standard-4t", None, 0), ("ct6e-standard-8t", None, 0)}
    old = names(offers(job("cloud-tpu", "TPU_V2", 8)))
    assert old == {("cloud-tpu", "TPU_V2", 8)}


def test_all_pools_of_the_chiefs_kind_move_and_others_stay(job, offers):
    gpus = PoolRequest("chief", 1, "n1-standard-8", T4, 1)
    servers = PoolRequest("parameter_servers", 2, "n1-standard-4")
    pools = [gpus, replace(gpus, role="workers", replicas=3), servers]
    by_machine = {
        (each.machine, each.accelerator): each.an_hour for each in offers(job(pools=pools))
    }
    assert by_machine["n1-standard-8", T4] == 4 * Decimal("0.9") + 2 * Decimal("0.25")
    assert by_machine["g2-standard-4", L4] == 4 * Decimal("0.6") + 2 * Decimal("0.25")


def test_where_nothing_is_known_of_a_region_the_job_stays_as_it_is(job, offers):
    [own] = offers(job("n1-standard-8", T4, 1, region="mars-north1"))
    assert own.is_own
    [own] = offers(job("z9-standard-8", T4, 1, region="mars-north1"))
    assert (own.machine, own.cpus, own.memory_gb) == ("z9-standard-8", None, None)


def test_the_table(job, offers):
    text = price.comparison(offers(job("n1-standard-8", T4, 1))[:3])
    assert text == (
        "      machine       accelerators  vCPUs  GB    an hour\n"
        "g2-standard-4        1 NVIDIA_L4      4  16  0.600 USD\n"
        "n1-standard-4  1 NVIDIA_TESLA_T4      4  15  0.650 USD\n"
        "n1-standard-8  1 NVIDIA_TESLA_T4      8  30  0.900 USD  this job's"
    )
    without = price.comparison(offers(job("n1-standard-8"))[:2])
    assert without == (
        "      machine  vCPUs  GB    an hour\n"
        "n1-standard-4      4  15  0.250 USD\n"
        "n1-standard-8      8  30  0.500 USD  this job's"
    )
    assert " unknown\n" in price.comparison(offers(job("n1-standard-8")))


def test_an_offer_is_plain_data_too(job, offers):
    assert offers(job("n1-standard-8", T4, 1))[2].as_json() == {
        "machine": "n1-standard-8",
        "accelerator": T4,
        "accelerator_count": 1,
        "cpus": 8,
        "memory_gb": 30,
        "an_hour": 0.9,
        "currency": "USD",
        "is_own": True,
    }
