"""A job whose region has no machines is moved to the next one, and never runs twice."""

from __future__ import annotations

import json
import shutil
import signal
from itertools import pairwise
from pathlib import Path

import emulators
import pytest

from distlaunch.google.client import connect
from distlaunch.google.jobs import Jobs

JOB_FILE = """\
name: digits
project: demo-project
region: us-central1
bucket: gs://demo-bucket
module: trainer
scheduling: {max_wait: 1s, regions: [us-central1, us-east4, europe-west4]}
cluster:
  chief: {machine: n1-standard-4}
"""
SUBMIT = ("submit", "--image=localhost:5000/digits:1", "--no-check")
KILLED = Path(__file__).with_name("killed.py")
# Before the first job is cancelled, before the second one's record is written, it is created and
# noted, and before the first one's record is closed.
MOMENTS = (9, 11, 13, 14, 16)

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path):
    (tmp_path / "distlaunch.yaml").write_text(JOB_FILE)
    (tmp_path / "trainer.py").write_text("import sys; sys.exit(len(sys.argv) > 1)")
    return tmp_path


@pytest.fixture
def submit(project, cli):

    def run(emulator, *words):
        return cli(*SUBMIT, *words, cwd=project, env=emulator.environment)

    return run


def jobs_of(emulator, name="digits"):
    """Return the regions and states of the jobs of a name in their order, one alive at a time."""
    session, matching = connect(emulator.url), f'displayName="{name}"'
    jobs = [
        (region, job)
        for region in ("us-central1", "us-east4", "europe-west4")
        for job in Jobs(session, emulators.PROJECT, region).list("customJobs", matching)
    ]
    jobs.sort(key=lambda each: each[1]["createTime"])
    for (_, earlier), (_, later) in pairwise(jobs):
        assert earlier["endTime"] <= later["createTime"]
    return [(region, job["state"].removeprefix("JOB_STATE_")) for region, job in jobs]


def test_a_job_is_moved_to_the_next_region_that_has_machines(project, submit):
    faults = "--faults=stockout:us-central1,no-start:us-east4"
    with emulators.running(project, faults) as emulator:
        done = submit(emulator, "--json")
        assert done.returncode == 0, done.stderr
        assert jobs_of(emulator) == [
            ("us-central1", "FAILED"),
            ("us-east4", "CANCELLED"),
            ("europe-west4", "SUCCEEDED"),
        ]
    events = [json.loads(line) for line in done.stdout.splitlines()]
    submitted = [event for event in events if event["event"] == "submitted"]
    assert [event["name"].split("/")[3] for event in submitted] == [
        "us-central1",
        "us-east4",
        "europe-west4",
    ]
    assert "no machines in us-central1; moving the job to us-east4" in done.stderr
    assert "the job has not started in us-east4: cancelling it" in done.stderr
    records = [json.loads(path.read_text()) for path in project.glob(".distlaunch/jobs/*.json")]
    assert [record["is_open"] for record in records] == [False] * 3


def test_each_region_is_tried_once(project, submit):
    with emulators.running(project, "--faults=stockout") as emulator:
        done = submit(emulator)
        assert done.returncode == 3, done.stderr
        assert jobs_of(emulator) == [
            ("us-central1", "FAILED"),
            ("us-east4", "FAILED"),
            ("europe-west4", "FAILED"),
        ]
    assert "Resources are insufficient in region: europe-west4" in done.stderr


def test_a_job_that_fails_by_itself_or_must_not_move_is_not_moved(project, submit):
    with emulators.running(project, "--faults=stockout:us-central1") as emulator:
        stays = submit(emulator, "--set=scheduling.on_stockout=fail")
        assert stays.returncode == 3
        fails = submit(emulator, "--region=us-east4", "--", "--fail")
        assert fails.returncode == 3
        detached = submit(emulator, "--detach")
        assert "a job that is not followed is not moved to another region" in detached.stderr
        states = jobs_of(emulator)
    assert [region for region, _ in states] == ["us-central1", "us-east4", "us-central1"]


def test_killed_while_moving_and_run_again_never_runs_two_jobs(project, cli, python):
    with emulators.running(project, "--faults=no-start:us-central1") as emulator:
        for moment in MOMENTS:
            name = f"digits-{moment}"
            folder = project / name
            folder.mkdir()
            job_file = JOB_FILE.replace("name: digits", f"name: {name}")
            (folder / "distlaunch.yaml").write_text(job_file)
            shutil.copy(KILLED, folder)
            words = ("killed", str(moment), *SUBMIT)
            killed = python.run(*words, cwd=folder, env=emulator.environment)
            assert killed.code == -signal.SIGKILL, killed.err
            done = cli(*SUBMIT, cwd=folder, env=emulator.environment)
            assert done.returncode == 0, done.stderr
            assert jobs_of(emulator, name)[-1] == ("us-east4", "SUCCEEDED")
