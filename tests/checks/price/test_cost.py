"""What jobs cost, against a bill that was paid and prices of a file's."""

from __future__ import annotations

from decimal import Decimal

import pytest

from distlaunch.checks import price
from distlaunch.checks.asked import AskedPool

from .lists import BILLED, COMPUTE_ENGINE, DISTRACTORS, VERTEX_AI

H100 = "NVIDIA_H100_80GB"
BOTH = {service: DISTRACTORS[service] + BILLED[service] for service in (VERTEX_AI, COMPUTE_ENGINE)}


@pytest.fixture
def cost(known):
    def of(job, session=None, file=None):
        return price.cost(job, known, price.prices(job, session=session, file=file))

    return of


@pytest.mark.parametrize(
    ("strategy", "an_hour"), [("STANDARD", "101.542968"), ("FLEX_START", "52.030616")]
)
def test_a_job_costs_what_was_billed_for_it(job, listing, cost, strategy, an_hour):
    pool = AskedPool("chief", 1, "a3-highgpu-8g", H100, 8, disk_type="pd-ssd", disk_gb=2_000)
    _, session = listing(BOTH)
    found = cost(job(pools=[pool], strategy=strategy, timeout=7_200), session)
    assert found.unknown == ()
    assert round(found.an_hour, 6) == Decimal(an_hour)
    assert found.up_to_timeout == 2 * found.an_hour
    assert "boot disks" not in found.without
