from __future__ import annotations

import pytest

from distlaunch.google.follow import StateTracker
from distlaunch.ui.events import JobChanged

from .servers import Clock


def job(state: str, **more: object) -> dict:
    return {"state": f"JOB_STATE_{state}", "createTime": at(0), **more}


def at(seconds: int) -> str:
    return f"2026-11-21T17:{seconds // 60:02}:{seconds % 60:02}Z"


def seen(*looks: dict) -> list[tuple[str, float | None]]:
    """Return the states reported, with the duration of the one before; an update comes each 5 s."""
    clock, found = Clock(), []
    states = StateTracker(clock)
    for look in looks:
        found += [(change.state, change.after) for change in states.update(look)]
        clock.sleep(5.0)
    return found


def test_a_run_between_two_updates_is_reported():
    ended = job("FAILED", startTime=at(30), endTime=at(31))
    assert seen(job("PENDING"), ended) == [("PENDING", None), ("RUNNING", 30.0), ("FAILED", 1.0)]


@pytest.mark.parametrize(
    ("first", "after"),
    [
        (job("PENDING"), 100.0),
        (job("RUNNING", startTime=at(40), updateTime=at(60)), 60.0),
        (job("CANCELLING", updateTime=at(70)), 100.0),
    ],
)
def test_the_duration_of_the_first_state_comes_from_googles_timestamps(first, after):
    ended = job("CANCELLED", endTime=at(100))
    assert seen(first, ended)[-1] == ("CANCELLED", after)


def test_without_timestamps_the_clock_is_used():
    looks = [{"state": "JOB_STATE_PENDING"}] * 3 + [{"state": "JOB_STATE_RUNNING"}]
    assert seen(*looks) == [("PENDING", None), ("RUNNING", 15.0)]


def test_a_job_that_is_changed_while_it_runs_runs_on():
    running = job("RUNNING", startTime=at(10))
    updating = job("UPDATING", startTime=at(10), updateTime=at(50))
    again = running | {"updateTime": at(55)}
    assert seen(running, updating, again) == [
        ("RUNNING", None),
        ("UPDATING", 40.0),
        ("RUNNING", 5.0),
    ]


def test_no_error_is_reported_of_a_running_job():
    states = StateTracker(Clock())
    troubled = job("RUNNING", error={"message": "a replica was restarted"})
    assert states.update(troubled) == [JobChanged("RUNNING", None, "")]
