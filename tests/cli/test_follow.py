"""What Ctrl-C means while a job is followed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from distlaunch.cli.follow import FollowOptions, follow_or_detach
from distlaunch.submit import launcher
from distlaunch.submit.records import Record
from distlaunch.ui.console import Console

JOB = {"name": "projects/1/locations/us-central1/customJobs/7"}
RECORD = Record(
    launch_id="digits-1",
    name="digits",
    project="p",
    region="us-central1",
    collection="customJobs",
    content="",
    request={},
    resource=JOB["name"],
)


@pytest.fixture
def interrupted(monkeypatch, capfd):
    """Follow a job with a Ctrl-C in each of some states; return the exit code and stderr."""

    def run(*states: str, cancels: bool = False, cancel=lambda _: None) -> tuple[int, str]:
        left = list(states)

        def attend(record, session, follow, watch):
            follow.job = JOB | {"state": f"JOB_STATE_{left.pop(0)}"}
            raise KeyboardInterrupt

        monkeypatch.setattr(launcher, "follow_to_completion", attend)
        code = follow_or_detach(
            Console(),
            launcher.Launched(RECORD, JOB),
            SimpleNamespace(close=lambda _: None),
            SimpleNamespace(session=None, project="p", cancel=cancel),
            FollowOptions(detach=False, cancel_on_interrupt=cancels, as_json=False),
        )
        assert left == []
        return code, capfd.readouterr().err

    return run


@pytest.mark.parametrize("cancels", [False, True])
@pytest.mark.parametrize(("state", "code"), [("SUCCEEDED", 0), ("FAILED", 3), ("CANCELLED", 3)])
def test_a_job_that_has_ended_is_shown_as_ended(interrupted, state, code, cancels):
    exit_code, err = interrupted(state, cancels=cancels)
    assert exit_code == code
    assert f"interrupted: the job has ended: {state}; 'distlaunch logs digits-1' shows all" in err
    assert "still running" not in err
    assert "cancel" not in err


def test_a_job_that_runs_goes_on(interrupted):
    exit_code, err = interrupted("RUNNING")
    assert exit_code == 130
    assert "interrupted: the job is still running; reattach with 'distlaunch logs --follow" in err


@pytest.mark.parametrize(
    ("states", "last"),
    [
        (
            ("RUNNING", "CANCELLING"),
            "cancellation requested; check it with 'distlaunch status digits-1'",
        ),
        (("RUNNING", "CANCELLED"), "the job has ended: CANCELLED; 'distlaunch logs digits-1'"),
    ],
)
def test_a_second_ctrl_c_does_not_deny_the_cancellation(interrupted, states, last):
    exit_code, err = interrupted(*states, cancels=True)
    assert exit_code == 130
    assert f"interrupted: {last}" in err
    assert "still running" not in err


def test_a_cancellation_that_is_interrupted_may_be_repeated(interrupted):
    def cancel(_: str) -> None:
        raise KeyboardInterrupt

    exit_code, err = interrupted("RUNNING", cancels=True, cancel=cancel)
    assert exit_code == 130
    assert "the cancellation is not confirmed; run 'distlaunch cancel digits-1'" in err
