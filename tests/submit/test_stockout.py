"""A job without machines is moved to the next machines or region, and never runs twice."""

from __future__ import annotations

import json
import os
import signal
from itertools import count

import emulators
import pytest
from launches import (
    MACHINES,
    MOVE,
    REGIONS,
    TRY_MACHINES,
    jobs_of,
    kill_submit,
    write_project,
)

# Of a command that is killed: all (make laws), or before the intention is noted, the first job is
# cancelled, the second one's record is written, it is created, the first one's record is closed.
LAWS = bool(os.environ.get("DISTLAUNCH_TEST_LAWS"))
MOMENTS = (10, 12, 16, 18, 23)

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


def test_a_job_is_moved_to_the_next_machines_that_there_are(submit, cli, tmp_path, records):
    folder = write_project(tmp_path / "digits", TRY_MACHINES)
    faults = "stockout:n1-standard-4,no-start:n1-standard-8"
    with emulators.serving(folder, faults) as emulator:
        done = submit(emulator, folder=folder)
        assert done.returncode == 0, done.stderr
        states = ("FAILED", "CANCELLED", "SUCCEEDED")
        tried = jobs_of(emulator, "digits", with_machines=True)
        assert tried == list(zip(MACHINES, states, strict=True))
        first = records(folder)[0]["launch_id"]
        cancel = cli("cancel", first, cwd=folder, env=emulator.environment)
        assert f"{first}: was moved to other machines; run 'distlaunch cancel" in cancel.stderr
    places = [f"{machine} in us-central1" for machine in MACHINES]
    assert f"no {places[0]}; moving the job to {places[1]}" in done.stderr
    assert f"the job has not started on {places[1]}: cancelling it" in done.stderr


def test_each_machine_is_tried_once_in_each_region(submit, tmp_path):
    lists = "scheduling: {regions: [us-east4], machines: [{machine: n1-standard-8}]}\n"
    folder = write_project(tmp_path / "digits", lists)
    with emulators.serving(folder, "stockout") as emulator:
        done = submit(emulator, folder=folder)
        assert done.returncode == 3, done.stderr
        tried = [(region, "FAILED") for region in REGIONS[:2] for _ in MACHINES[:2]]
        assert jobs_of(emulator, "digits") == tried
    assert "Resources are insufficient in region: us-east4" in done.stderr


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


@pytest.mark.parametrize("lists", [MOVE, TRY_MACHINES], ids=["regions", "machines"])
def test_killed_while_moving_and_run_again_never_runs_two_jobs(
    project, submit, python, tmp_path, lists
):
    is_machines = lists == TRY_MACHINES
    places = MACHINES if is_machines else REGIONS
    with emulators.serving(project, f"no-start:{places[0]}") as emulator:
        for moment in count() if LAWS else MOMENTS[is_machines::2]:
            folder = write_project(tmp_path / f"digits-{moment}", lists)
            was_killed = kill_submit(python, folder, emulator, moment) == -signal.SIGKILL
            done = submit(emulator, folder=folder)
            assert done.returncode == 0, (moment, done.stderr)
            jobs = jobs_of(emulator, folder.name, with_machines=is_machines)
            assert jobs[-1] == (places[1], "SUCCEEDED"), moment
            if not was_killed:
                break
        assert was_killed != LAWS
