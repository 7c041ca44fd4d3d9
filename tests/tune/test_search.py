"""The parameters that a search tries."""

from __future__ import annotations

import math

import pytest

from distlaunch.errors import DistlaunchError
from distlaunch.job.model import ChoiceParameter, RangeParameter, Tuning
from distlaunch.tune.search import Observation, check_search, next_point, values_at

RATE = RangeParameter(0.001, 1.0, scale="log")
LAYERS = RangeParameter(1, 3, is_integer=True)
KIND = ChoiceParameter(("sgd", "adam"))
UNITS = ChoiceParameter(("16", "32", "64"), is_numeric=True)


def tuning(algorithm, trials=20, **parameters):
    return Tuning("loss", "minimize", parameters, trials, algorithm=algorithm)


def run(search, loss=lambda values: 0.0):
    """Return the values of all trials, one after the other, and what each reports."""
    earlier, tried = [], []
    for number in range(1, search.trials + 1):
        point = next_point(search, number, earlier)
        if point is None:
            break
        tried.append(values_at(search, point))
        earlier.append(Observation(point, loss(tried[-1])))
    return tried, [each.metric for each in earlier]


def test_a_grid_has_each_combination_once():
    tried, _ = run(tuning("grid", layers=LAYERS, kind=KIND))
    assert tried == [
        {"layers": layers, "kind": kind} for layers in (1, 2, 3) for kind in ("sgd", "adam")
    ]


@pytest.mark.parametrize("algorithm", ["random", "bayesian"])
def test_values_are_in_range_and_the_same_each_time(algorithm):
    search = tuning(algorithm, trials=40, rate=RATE, layers=LAYERS, kind=KIND, units=UNITS)
    tried, _ = run(search)
    assert tried == run(search)[0]
    assert all(0.001 <= values["rate"] <= 1 for values in tried)
    assert sum(values["rate"] < 0.03 for values in tried) in range(10, 31)  # half of the log range
    assert {values["layers"] for values in tried} == {1, 2, 3}
    assert {values["kind"] for values in tried} == {"sgd", "adam"}
    assert {values["units"] for values in tried} == {"16", "32", "64"}


def test_bayesian_search_is_better_than_random():
    def loss(values):
        return math.log(values["rate"] / 0.02) ** 2 + (values["layers"] - 7) ** 2

    parameters = {"rate": RATE, "layers": RangeParameter(1, 20, is_integer=True)}
    losses = {
        algorithm: run(tuning(algorithm, trials=40, **parameters), loss)[1]
        for algorithm in ("random", "bayesian")
    }
    late = {name: sum(values[-15:]) / 15 for name, values in losses.items()}
    assert late["bayesian"] < late["random"] / 2


def test_trials_that_failed_or_run_count_for_nothing():
    search = tuning("bayesian", rate=RATE)
    earlier = [Observation({"rate": 0.1}, None), Observation({"rate": 0.2}, math.nan)]
    assert 0 <= next_point(search, 3, earlier)["rate"] <= 1


@pytest.mark.parametrize(
    ("scale", "low", "high", "middle"),
    [("linear", -1, 1, 0), ("log", 0.01, 1, 0.1), ("reverse_log", 0.01, 1, 0.91)],
)
def test_scales(scale, low, high, middle):
    search = tuning("random", x=RangeParameter(low, high, scale=scale))
    values = [values_at(search, {"x": fraction})["x"] for fraction in (0, 0.5, 1)]
    assert values == pytest.approx([low, middle, high])


@pytest.mark.parametrize(
    ("algorithm", "parameter", "message"),
    [
        ("random", RangeParameter(0, 1, scale="log"), "x: a log scale needs a min above 0, got 0"),
        ("grid", RangeParameter(0, 1), "x: a grid has no range of the type double; write values:"),
    ],
)
def test_searches_that_cannot_be_run(algorithm, parameter, message):
    with pytest.raises(DistlaunchError, match=message):
        check_search(tuning(algorithm, x=parameter))


def test_bayesian_search_needs_optuna(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(DistlaunchError, match=r"pip install 'optuna>=4,<6', or --set tuning"):
        check_search(tuning("bayesian", x=RATE))
