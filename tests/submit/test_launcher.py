"""A launch makes one job, whatever goes wrong on its way."""

from __future__ import annotations

import json
import signal
import subprocess

import emulators
import pytest
from launches import kill_submit, write_project

from distlaunch.engines.vertex.client import connect

LONG = ("--detach", "--", "600")  # a job that has not ended by the next command
MOMENTS = 8  # until the record names the job

# What may pass when it is retried; a retry follows each but the last.
TRANSIENT = ("429", "reset", "expired", "lost")
AT_CREATE = ",".join(f"{fault}@create#{2 * n + 1}" for n, fault in enumerate(TRANSIENT))
AT_LIST = ",".join(f"{fault}@list#{2 * n + 1}" for n, fault in enumerate(TRANSIENT))
FOLLOWING = "503@get#1,reset@get#3,lost@get#5,429@logs#1,expired@logs#3,500@storage#1"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    with emulators.serving(write_project(tmp_path_factory.mktemp("buckets"))) as emulator:
        yield emulator


@pytest.fixture
def launch(submit, tmp_path):
    """Submit the job of a name, by default one that has not ended by the next command."""
    return lambda emulator, name, *words: submit(
        emulator, *(words or LONG), folder=write_project(tmp_path / name)
    )


def assert_one_job_each(launches, jobs):
    assert [launch["resource"] for launch in launches] == [job["name"] for job in reversed(jobs)]
    assert not any(launch["is_open"] for launch in launches)


@pytest.mark.parametrize("faults", [AT_CREATE, f"lost@create,{AT_LIST}"], ids=["create", "list"])
def test_a_transient_failure_makes_one_job(faults, project, launch, records, tmp_path):
    with emulators.serving(project, call_faults=faults) as emulator:
        for fault in TRANSIENT:
            done = launch(emulator, f"after-{fault}")
            assert done.returncode == 0, (fault, done.stderr)
        launches = records(*(tmp_path / f"after-{fault}" for fault in TRANSIENT))
        assert_one_job_each(launches, emulator.jobs())


def test_a_job_is_followed_through_transient_failures(project, launch, records):
    with emulators.serving(project, call_faults=FOLLOWING) as emulator:
        done = launch(emulator, "digits", "--", "1")
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("| trained\n") == 1
        assert_one_job_each(records(project), emulator.jobs())


def test_a_refusal_makes_no_job_and_leaves_nothing_open(project, submit, records):
    faults = "denied@create#1,disabled@create#2,quota@create#3,404@create#4"
    with emulators.serving(project, call_faults=faults) as emulator:
        for number in range(1, 5):
            done = submit(emulator)
            assert done.returncode == 1
            assert done.stderr.count("distlaunch: error: ") == 1
            assert "Traceback" not in done.stderr
            assert [record["is_open"] for record in records(project)] == [False] * number
        assert emulator.jobs() == []


def test_a_refused_look_up_after_a_lost_response_makes_no_second_job(
    project, launch, records, tmp_path
):
    faults = "lost@create#1-2,denied@list#1,expired@list#3-4"
    with emulators.serving(project, call_faults=faults) as emulator:
        for name in ("denied", "expired"):
            first = launch(emulator, name)
            assert first.returncode == 1
            assert "the job may have been created, but the look-up failed (" in first.stderr
            second = launch(emulator, name)
            assert second.returncode == 0, second.stderr
        assert_one_job_each(records(tmp_path / "denied", tmp_path / "expired"), emulator.jobs())


@pytest.mark.parametrize("name", ["ended", "not-noted", "deleted"])
def test_an_open_launch_whose_job_is_over_starts_a_new_one(
    name, healthy, launch, records, tmp_path
):
    folder, words = tmp_path / name, ("--detach", "--", "0")
    assert launch(healthy, name, *words).returncode == 0
    job = healthy.wait("SUCCEEDED")
    [record] = records(folder)
    # What a command leaves behind that is killed while it follows.
    path = folder / f".distlaunch/jobs/{record['launch_id']}.json"
    resource = None if name == "not-noted" else job["name"]
    path.write_text(json.dumps(record | {"is_open": True, "resource": resource}))
    outcome = "has ended (SUCCEEDED)"
    if name == "deleted":
        outcome = "no longer exists"
        connect(healthy.url).call("DELETE", "aiplatform", job["name"], region=emulators.REGION)
    done = launch(healthy, name, *words)
    assert done.returncode == 0, done.stderr
    interrupted = f"the job of the interrupted launch {record['launch_id']} {outcome}"
    assert f"{interrupted}; starting a new one" in done.stderr
    launches = records(folder)
    assert len({launch["resource"] for launch in launches} - {None}) == 2
    assert [launch["is_open"] for launch in launches] == [False, False]


def test_killed_at_any_moment_and_run_again_makes_one_job(healthy, launch, python, tmp_path):
    for moment in range(MOMENTS):
        name = f"digits-{moment}"
        folder = write_project(tmp_path / name)
        code = kill_submit(python, folder, healthy, moment, "--", "600")
        assert code == -signal.SIGKILL, moment
        launch_id = launch(healthy, name).stdout.strip()
        [job] = [job for job in healthy.jobs() if job["displayName"] == name]
        assert job["labels"]["distlaunch-launch"] == launch_id, moment


def test_a_record_with_a_choice_that_does_not_exist_is_resumed(
    healthy, launch, python, tmp_path, records
):
    folder = write_project(tmp_path / "digits-edited")
    kill_submit(python, folder, healthy, MOMENTS - 4, "--", "600")
    [path] = folder.glob(".distlaunch/jobs/*.json")
    path.write_text(json.dumps(records(folder)[0] | {"choice": 7, "resource": None}))
    done = launch(healthy, folder.name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == path.stem


def test_the_record_has_the_commit_and_no_program_of_gits_configuration_runs(
    healthy, submit, records, project, tmp_path
):
    marker = tmp_path / "marker"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", project]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "config", "core.fsmonitor", f"touch {marker};"], check=True)
    assert submit(healthy, "--detach").returncode == 0
    [record] = records(project)
    head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True)
    assert record["commit"] == head.strip()
    assert not marker.exists()
