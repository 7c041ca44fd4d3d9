"""The emulator's price list, which was made without a look at who reads it here."""

from __future__ import annotations

from decimal import Decimal

import pytest

from distlaunch.checks import price
from distlaunch.checks.request_view import PoolRequest
from distlaunch.google.client import connect

T4, V100, L4, A100 = "NVIDIA_TESLA_T4", "NVIDIA_TESLA_V100", "NVIDIA_L4", "NVIDIA_TESLA_A100"


@pytest.mark.timeout(120)
def test_prices_of_the_emulator(emulator, job, known, today, cache):
    session = connect(emulator().url, project="demo-project")

    def cost(machine, accelerator=None, count=0, **others):
        wanted = job(machine, accelerator, count, **others)
        return price.cost(wanted, known, price.prices(wanted, session=session, file=None))

    disk = Decimal(17) / 730  # 100 GB of SSD for 0.17 USD a month each
    for found, expected in (
        (cost("n1-standard-8"), "0.47"),
        (cost("e2-standard-8"), "0.368"),
        (cost("n1-standard-8", T4, 1), "0.87"),
        (cost("n1-standard-8", V100, 2), "5.47"),
        (cost("g2-standard-4", L4, 1), "0.768"),
        (cost("n1-standard-8", T4, 1, strategy="SPOT"), "0.348"),
        (cost("g2-standard-4", L4, 1, strategy="FLEX_START"), "0.4608"),
        (cost("n1-standard-8", T4, 1, region="europe-west4"), "0.957"),
    ):
        assert found.an_hour == pytest.approx(Decimal(expected) + disk)
        assert found.sources == ("figures that the emulator made up",)
    assert cost("n1-standard-8", T4, 1, strategy="FLEX_START").an_hour is None
    assert cost("n1-standard-8", T4, 1, region="me-west1").an_hour is None

    wanted = job(pools=[PoolRequest("chief", 1, "a2-highgpu-1g", A100, 1)])
    offers = price.compare(wanted, known, price.prices(wanted, session=session, file=None), today)
    priced = {each.accelerator for each in offers if each.an_hour is not None}
    assert priced == {T4, V100, L4, A100, "NVIDIA_A100_80GB", "NVIDIA_H100_80GB"}
    assert not cache.exists()


def test_an_emulator_that_refuses(emulator, job, known):
    session = connect(emulator("--faults=denied@prices").url, project="demo-project")
    wanted = job("n1-standard-8")
    cost = price.cost(wanted, known, price.prices(wanted, session=session, file=None))
    assert cost.an_hour is None
    assert "Google's price list cannot be read: " in cost.lines()[0]
