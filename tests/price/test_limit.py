"""A limit on the price of a job, and the timeout that keeps it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch import price
from distlaunch.job import machine_catalogue
from distlaunch.job.launch import LaunchRequest
from distlaunch.job.model import (
    Cluster,
    Job,
    Machine,
    MachineChoice,
    Pool,
    RangeParameter,
    Scheduling,
    Tuning,
)

KNOWN = machine_catalogue.bundled()
LARGE = MachineChoice(Machine("n1-standard-32"))
TRIALS = Tuning("accuracy", "maximize", {"rate": RangeParameter(0, 1)}, 5, 2)


def launch(timeout, max_cost, machines=(), tuning=None):
    scheduling = Scheduling(timeout=timeout, max_cost=max_cost, machines=machines)
    cluster = Cluster(Pool(Machine("n1-standard-4")))
    job = Job("digits", cluster, region="us-central1", scheduling=scheduling, tuning=tuning)
    return LaunchRequest(Path(), job)


@given(
    st.integers(1, 10**7),
    st.decimals("0.01", 10**4, places=2).map(float),
    st.sampled_from([(), (LARGE,)]),
    st.sampled_from([None, TRIALS]),
)
def test_the_longest_timeout_that_the_limit_pays_for(timeout, max_cost, machines, tuning):
    asked = launch(timeout, max_cost, machines, tuning)
    before = price.price_choices(asked, KNOWN)
    fitting = price.fit_timeout(asked, before)
    after = price.price_choices(fitting, KNOWN)
    chosen = after[0].request.timeout
    highest = max(choice.cost.up_to_timeout for choice in after)
    assert chosen <= timeout
    if fitting is asked:
        of_a_minute = highest / timeout * 60
        assert highest <= Decimal(str(max_cost)) or of_a_minute > Decimal(str(max_cost))
    else:
        assert highest <= Decimal(str(max_cost)) < highest / chosen * (chosen + 60)


def test_an_unknown_price_shortens_nothing():
    unknown = launch(3600, 0.01, (MachineChoice(Machine("x9-mega-4")),))
    assert price.fit_timeout(unknown, price.price_choices(unknown, KNOWN)) is unknown


@pytest.mark.parametrize("on_slurm", [False, True])
def test_without_a_limit_nothing_is_shortened(on_slurm):
    asked = launch(3600, None)
    engine = "slurm" if on_slurm else "vertex"
    asked = replace(asked, job=replace(asked.job, engine=engine))
    assert price.fit_timeout(asked, ()) is asked
