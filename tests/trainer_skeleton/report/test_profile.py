"""Which steps a profile takes, and what becomes of one that the run does not reach or end."""

from __future__ import annotations

import pytest
import tensorflow as tf

from distlaunch_trainer.report.profile import Profile


@pytest.fixture
def calls(monkeypatch):
    calls = []
    for name in ("start", "stop"):
        record = lambda *_, name=name: calls.append(name)  # noqa: E731
        monkeypatch.setattr(tf.profiler.experimental, name, record)
    return calls


def train(profile, last):
    """Execute the steps as the loop does; return where executions ended."""
    step, ends = 0, []
    while step < last:
        profile.start(step)
        step = profile.boundary(step, min(step + 10, last))
        profile.stop(step)
        ends.append(step)
    profile.close()
    return ends


def test_executions_end_at_the_profiled_steps(calls):
    assert train(Profile((13, 15), "", is_chief=True), 30) == [10, 12, 13, 14, 15, 25, 30]
    assert calls == ["start", "stop"]


def test_a_profile_is_written_if_the_run_ends_before(calls):
    profile = Profile((13, 50), "", is_chief=True)
    train(profile, 15)
    assert calls == ["start", "stop"]
    assert profile.missing(15) is None


def test_steps_that_a_run_does_not_reach_are_reported(calls):
    profile = Profile((100, 110), "", is_chief=True)
    train(profile, 15)
    assert calls == []
    assert profile.missing(15) == "--profile 100:110: the run ends after step 15"
    assert Profile(None, "", is_chief=True).missing(15) is None


def test_only_the_chief_takes_it(calls):
    train(Profile((13, 15), "", is_chief=False), 30)
    assert calls == []
