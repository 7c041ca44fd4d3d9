"""A job whose region has no machines is moved to the next one, and never runs twice."""

from __future__ import annotations

import json
import os
import signal
from itertools import count

import emulators
import pytest
from launches import MOVE, REGIONS, jobs_of, kill_submit, write_project

# Of a command that is killed: all (make laws), or before the intention is noted, the first job is
# cancelled, the second one's record is written, it is created, the first one's record is closed.
LAWS = bool(os.environ.get("DISTLAUNCH_TEST_LAWS"))
MOMENTS = count() if LAWS else (10, 12, 16, 18, 23)

pytestmark = pytest.mark.slow


def test_a_job_is_moved_to_the_next_region_that_has_machines(project, submit, cli, records):
    faults = "stockout:us-central1,no-start:us-east4"
    with emulators.serving(project, faults) as emulator:
        done = submit(emulator, "--json")
        assert done.returncode == 0, done.stderr
        assert jobs_of(emulator, "digits") == [
            ("us-central1", "FAILED"),
            ("us-east4", "CANCELLED"),
            ("europe-west4", "SUCCEEDED"),
        ]
        first, second, _ = launches = records(project)
        cancel = cli("cancel", first["launch_id"], cwd=project, env=emulator.environment)
        assert cancel.returncode == 1
        moved = f"was moved to us-east4; run 'distlaunch cancel {second['launch_id']}'"
        assert moved in cancel.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    submitted = [event for event in events if event["event"] == "submitted"]
    assert [event["name"].split("/")[3] for event in submitted] == list(REGIONS)
    assert "no machines in us-central1; moving the job to us-east4" in done.stderr
    assert "the job has not started in us-east4: cancelling it" in done.stderr
    assert [launch["is_open"] for launch in launches] == [False] * 3


def test_each_region_is_tried_once(project, submit):
    with emulators.serving(project, "stockout") as emulator:
        done = submit(emulator)
        assert done.returncode == 3, done.stderr
        assert jobs_of(emulator, "digits") == [(region, "FAILED") for region in REGIONS]
    assert "Resources are insufficient in region: europe-west4" in done.stderr


def test_a_job_that_fails_by_itself_or_must_not_move_is_not_moved(project, submit):
    with emulators.serving(project, "stockout:us-central1") as emulator:
        stays = submit(emulator, "--set=scheduling.on_stockout=fail")
        assert stays.returncode == 3
        fails = submit(emulator, "--region=us-east4", "--", "no-number")
        assert fails.returncode == 3
        detached = submit(emulator, "--detach")
        assert "a job that is not followed is not moved to another region" in detached.stderr
        states = jobs_of(emulator, "digits")
    assert [region for region, _ in states] == ["us-central1", "us-east4", "us-central1"]


def test_killed_while_moving_and_run_again_never_runs_two_jobs(project, submit, python, tmp_path):
    with emulators.serving(project, "no-start:us-central1") as emulator:
        for moment in MOMENTS:
            folder = write_project(tmp_path / f"digits-{moment}", MOVE)
            was_killed = kill_submit(python, folder, emulator, moment) == -signal.SIGKILL
            done = submit(emulator, folder=folder)
            assert done.returncode == 0, (moment, done.stderr)
            jobs = jobs_of(emulator, folder.name)
            assert jobs[-1] == ("us-east4", "SUCCEEDED"), moment
            if not was_killed:
                break
        assert was_killed != LAWS
