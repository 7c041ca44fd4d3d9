"""Trials as lines where there is no terminal."""

from __future__ import annotations

from distlaunch.job.trial import SUCCEEDED, Study, Trial
from distlaunch.tune.search_view import SearchView
from distlaunch.ui.console import Console


def test_a_trial_that_succeeded_without_a_value(capfd):
    view = SearchView(Console(), Study("loss", "minimize", ("rate",), 1), ["distlaunch", "local"])
    view.update([Trial(1, {"rate": 0.1}, SUCCEEDED, seconds=2.0)])
    assert "trial 1 (rate 0.1): loss not reported after 2.0 s\n" in capfd.readouterr().err
