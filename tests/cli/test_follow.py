"""What Ctrl-C means while a job is followed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from distlaunch.cli.follow import follow_or_detach
from distlaunch.submit import launcher
from distlaunch.ui.console import Console
from distlaunch.ui.progress_view import ProgressView

from .cloud import new_record

JOB = {"name": "projects/1/locations/us-central1/customJobs/7"}
CANCEL, KEEP = True, False
LOGS, CHECK = "'distlaunch logs digits-1'", "check 'distlaunch status digits-1'"


@pytest.mark.parametrize(
    ("states", "cancel", "end"),
    [
        (["SUCCEEDED"], KEEP, (0, f"the job has ended: SUCCEEDED; {LOGS} shows all lines")),
        (["FAILED"], CANCEL, (3, f"the job has ended: FAILED; {LOGS} shows all lines")),
        (["RUNNING"], KEEP, (130, "the job is still running; reattach with 'distlaunch logs --f")),
        (["RUNNING", "CANCELLING"], CANCEL, (130, f"the cancellation is not confirmed; {CHECK}")),
        (["RUNNING", "CANCELLED"], CANCEL, (130, f"the job has ended: CANCELLED; {LOGS}")),
    ],
)
def test_ctrl_c_in_each_state(states, cancel, end, monkeypatch, capfd):
    exit_code, message = end
    left = list(states)

    def interrupt(_, follower):
        follower.job = JOB | {"state": f"JOB_STATE_{left.pop(0)}"}
        raise KeyboardInterrupt

    def ignore(_):
        pass

    cancelled = []
    jobs = SimpleNamespace(
        session=SimpleNamespace(endpoint=None), project="p", cancel=cancelled.append
    )
    monkeypatch.setattr(ProgressView, "stream", interrupt)
    code = follow_or_detach(
        Console(),
        launcher.Launched(new_record(resource=JOB["name"]), JOB, {}.get),
        SimpleNamespace(close=ignore, note_cancelled=ignore, jobs=jobs),
        detach=False,
        cancel_on_interrupt=cancel,
        as_json=False,
    )
    err = capfd.readouterr().err
    assert (code, left) == (exit_code, [])
    assert f"interrupted: {message}" in err
    assert ("still running" in err) == (states == ["RUNNING"])
    assert cancelled == ([JOB["name"]] if len(states) == 2 else [])
