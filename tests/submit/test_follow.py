"""What Ctrl-C means while a job is followed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from distlaunch.engines.vertex.job_resource import read_status
from distlaunch.submit.follow import FollowOptions, follow_job, follow_launch
from distlaunch.submit.launcher import Choice, Launched
from distlaunch.ui.console import Console
from distlaunch.ui.progress_view import ProgressView

from ..cli.cloud import LABEL, new_record  # noqa: TID252 - tests are no package

JOB = {"name": "projects/1/locations/us-central1/customJobs/7", "labels": {LABEL: "digits-1"}}
CANCEL, KEEP = True, False
LOGS, CHECK = "'distlaunch logs digits-1'", "check 'distlaunch status digits-1'"


def status(state: str):
    return read_status(JOB | {"state": f"JOB_STATE_{state}"}, "p")


@pytest.mark.parametrize("collection", ["customJobs", "hyperparameterTuningJobs"])
def test_a_job_without_a_summary_ends_with_its_folder(collection, monkeypatch, capfd):
    spec = {"baseOutputDirectory": {"outputUriPrefix": "gs://bucket/digits-1/"}}
    name = JOB["name"].replace("customJobs", collection)
    job = {"name": name, "state": "JOB_STATE_SUCCEEDED", "jobSpec": spec}
    follower = SimpleNamespace(is_stalled=False, status=read_status(job, "p"))
    engine = SimpleNamespace(follow=lambda *_, **__: follower, read_file=lambda _: None)
    launcher = SimpleNamespace(close=lambda _: None, move=lambda *_: None, engine=engine)
    monkeypatch.setattr(ProgressView, "stream", lambda *_: None)
    launched = Launched(
        new_record(resource=name), follower.status, (Choice("us-central1", {}.get),)
    )
    view, options = ProgressView(Console(), ["chief"]), FollowOptions(None)
    assert follow_launch(launched, launcher, view, options) == 0
    assert "done; the job's folder is gs://bucket/digits-1\n" in capfd.readouterr().err


@pytest.mark.parametrize("is_launch", [True, False], ids=["submit", "logs"])
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
def test_ctrl_c_in_each_state(states, cancel, end, *, is_launch, monkeypatch, capfd):
    exit_code, message = end
    left = list(states)

    def interrupt(_, follower):
        follower.status = status(left.pop(0))
        raise KeyboardInterrupt

    def ignore(_):
        pass

    cancelled = []
    engine = SimpleNamespace(
        follow=lambda *_, **__: SimpleNamespace(is_stalled=False), cancel=cancelled.append
    )
    monkeypatch.setattr(ProgressView, "stream", interrupt)
    view, options = ProgressView(Console(), ["chief"]), FollowOptions(None, cancel)
    if is_launch:
        launched = Launched(
            new_record(resource=JOB["name"]), status("RUNNING"), (Choice("us-central1", {}.get),)
        )
        launcher = SimpleNamespace(close=ignore, note_cancelled=ignore, engine=engine)
        code = follow_launch(launched, launcher, view, options)
    else:
        code = follow_job(engine, status("RUNNING"), view, options)
    err = capfd.readouterr().err
    assert (code, left) == (exit_code, [])
    assert f"interrupted: {message}" in err
    assert ("still running" in err) == (states == ["RUNNING"])
    assert cancelled == ([JOB["name"]] if len(states) == 2 else [])
