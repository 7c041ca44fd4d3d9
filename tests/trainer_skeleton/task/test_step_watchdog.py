"""The watchdog of steps leaves a run alone whose tasks a debugger may hold."""

from __future__ import annotations

import time

import pytest

from distlaunch_trainer.task.step_watchdog import StepWatchdog


@pytest.mark.parametrize("is_debugged", [False, True])
def test_a_task_without_steps_is_ended_unless_a_debugger_may_hold_one(is_debugged, monkeypatch):
    ended = []
    monkeypatch.setenv("DISTLAUNCH_DEBUG_TASK", "1" if is_debugged else "")
    watchdog = StepWatchdog("chief", 0.05)
    monkeypatch.setattr(watchdog, "_end", lambda: ended.append(True))
    with watchdog:
        watchdog.end_epoch()
        time.sleep(0.3)
    assert bool(ended) is not is_debugged
