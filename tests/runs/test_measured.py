"""A run's steps are read from a summary that may be damaged in any way."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from distlaunch.errors import DistlaunchError
from distlaunch.runs.measured import measured_run
from distlaunch.runs.view import RunView

TIMING = {"total": 6.0, "input": 0.2, "compute": 4.6, "exchange": 0.9, "wait": 0.9}
SUMMARY = {
    "tasks": ["chief", "worker:0"],
    "machine": {"cpus": 4, "gpus": ["Tesla T4"]},
    "timing": TIMING,
    "global_batch": 64,
    "gradient_bytes": 51_240,
    "examples_per_epoch": 1000,
    "steps_per_epoch": 16,
    "epochs": [{"timing": TIMING}, {"timing": TIMING}],
}
PLACES = [
    *((name,) for name in SUMMARY),
    *((name, inner) for name in ("machine", "timing") for inner in SUMMARY[name]),
    ("epochs", 1, "timing"),
    ("epochs", 1, "timing", "total"),
]
JUNK = (None, "x", "5", [], [None], {}, {"a": 1}, -1, 0, math.nan, math.inf, 10**400, 1e308, True)


def damage(summary, place, value):
    *outer, last = place
    for name in outer:
        summary = summary[name]
    summary[last] = value


@given(st.dictionaries(st.sampled_from(PLACES), st.sampled_from(JUNK), max_size=3))
def test_a_damaged_summary_is_refused_or_has_finite_numbers(damages):
    summary = deepcopy(SUMMARY)
    for place in sorted(damages, key=len, reverse=True):  # what is inside first
        damage(summary, place, damages[place])
    try:
        run = measured_run(RunView("run", "a", "SUCCEEDED", summary=summary))
    except DistlaunchError:
        assert damages
        return
    for field in fields(run):
        value = getattr(run, field.name)
        assert not isinstance(value, float) or 0 <= value < math.inf
    assert run.batch * run.examples * run.epochs > 0
