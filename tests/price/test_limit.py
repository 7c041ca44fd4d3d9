"""A limit on the price of a job, and the timeout that keeps it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from distlaunch import price
from distlaunch.checks.cost_limit import price_problem
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
from distlaunch.price.limit import fitting_timeout

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
    limited = launch(timeout, max_cost, machines, tuning)
    fitting = fitting_timeout(price.price_choices(limited), max_cost)
    limit, seconds = Decimal(str(max_cost)), fitting or timeout
    fitted = launch(seconds, max_cost, machines, tuning)
    highest = max(choice.cost.up_to_timeout for choice in price.price_choices(fitted))
    if fitting is None:
        assert highest / timeout * 60 > limit
    else:
        assert highest <= limit < highest / seconds * (seconds + 60)


def test_an_unknown_price_or_one_of_nothing_shortens_nothing():
    unknown = launch(3600, 0.01, (MachineChoice(Machine("x9-mega-4")),))
    assert fitting_timeout(price.price_choices(unknown), 0.01) is None
    warm = launch(3600, 0.01)
    warm = replace(warm, job=replace(warm.job, persistent_resource="warm"))
    assert fitting_timeout(price.price_choices(warm), 0.01) is None


def test_a_price_just_above_the_limit_does_not_look_like_it():
    [choice] = price.price_choices(launch(36_000, None))
    problem = price_problem(choice.cost, float(choice.cost.up_to_timeout) - 1e-4)
    in_all, allowed = problem.what.partition(" is ")[2].split(", above ")
    assert in_all != allowed
