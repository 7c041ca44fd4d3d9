"""A launch makes one job, whatever goes wrong on its way."""

from __future__ import annotations

import json
import signal
import subprocess

import emulators
import pytest
from launches import SUBMIT, kill_submit

from distlaunch.engines.vertex.client import connect

JOB_FILE = """\
name: {name}
project: demo-project
region: us-central1
bucket: gs://demo-bucket
module: trainer
cluster:
  chief: {{machine: n1-standard-4}}
"""
TRAINER = "import sys, time; time.sleep(float(sys.argv[-1])); print('trained')\n"
LONG = ("--detach", "--", "600")  # a job that has not ended by the next command
MOMENTS = 8  # until the record names the job

# What may pass when it is retried; a retry follows each but the last.
TRANSIENT = ("429", "reset", "expired", "lost")
AT_CREATE = ",".join(f"{fault}@create#{2 * n + 1}" for n, fault in enumerate(TRANSIENT))
AT_LIST = ",".join(f"{fault}@list#{2 * n + 1}" for n, fault in enumerate(TRANSIENT))
FOLLOWING = "503@get#1,reset@get#3,lost@get#5,429@logs#1,expired@logs#3,500@storage#1"

pytestmark = pytest.mark.slow


def write_project(folder):
    folder.mkdir(exist_ok=True)
    (folder / "distlaunch.yaml").write_text(JOB_FILE.format(name=folder.name))
    (folder / "trainer.py").write_text(TRAINER)
    return folder


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    with emulators.running(write_project(tmp_path_factory.mktemp("buckets"))) as emulator:
        yield emulator


@pytest.fixture
def with_faults(tmp_path):
    folder = write_project(tmp_path / "trainer")
    return lambda faults: emulators.running(folder, call_faults=faults)


@pytest.fixture
def submit(cli, tmp_path):

    def run(emulator, name, *words):
        folder = write_project(tmp_path / name)
        return cli(*SUBMIT, *(words or LONG), cwd=folder, env=emulator.environment)

    return run


@pytest.fixture
def records(tmp_path):

    def read(*names):
        folders = [tmp_path / name / ".distlaunch/jobs" for name in names]
        paths = [path for folder in folders for path in sorted(folder.glob("*.json"))]
        return [json.loads(path.read_text()) for path in paths]

    return read


def assert_one_job_each(launches, jobs):
    assert [launch["resource"] for launch in launches] == [job["name"] for job in reversed(jobs)]
    assert not any(launch["is_open"] for launch in launches)


@pytest.mark.parametrize("faults", [AT_CREATE, f"lost@create,{AT_LIST}"], ids=["create", "list"])
def test_a_transient_failure_makes_one_job(faults, with_faults, submit, records):
    with with_faults(faults) as emulator:
        for fault in TRANSIENT:
            done = submit(emulator, f"after-{fault}")
            assert done.returncode == 0, (fault, done.stderr)
        assert_one_job_each(records(*(f"after-{fault}" for fault in TRANSIENT)), emulator.jobs())


def test_a_job_is_followed_through_transient_failures(with_faults, submit, records):
    with with_faults(FOLLOWING) as emulator:
        done = submit(emulator, "digits", "--", "1")
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("| trained\n") == 1
        assert_one_job_each(records("digits"), emulator.jobs())


def test_a_refusal_makes_no_job_and_leaves_nothing_open(with_faults, submit, records):
    with with_faults("denied@create#1,disabled@create#2,quota@create#3,404@create#4") as emulator:
        for number in range(1, 5):
            done = submit(emulator, "digits")
            assert done.returncode == 1
            assert done.stderr.count("distlaunch: error: ") == 1
            assert "Traceback" not in done.stderr
            assert [record["is_open"] for record in records("digits")] == [False] * number
        assert emulator.jobs() == []


def test_a_refused_look_up_after_a_lost_response_makes_no_second_job(with_faults, submit, records):
    faults = "lost@create#1-2,denied@list#1,expired@list#3-4"
    with with_faults(faults) as emulator:
        for name in ("denied", "expired"):
            first = submit(emulator, name)
            assert first.returncode == 1
            assert "the job may have been created, but the look-up failed (" in first.stderr
            second = submit(emulator, name)
            assert second.returncode == 0, second.stderr
        assert_one_job_each(records("denied", "expired"), emulator.jobs())


@pytest.mark.parametrize("name", ["ended", "not-noted", "deleted"])
def test_an_open_launch_whose_job_is_over_starts_a_new_one(
    name, healthy, submit, records, tmp_path
):
    assert submit(healthy, name, "--detach", "--", "0").returncode == 0
    job = healthy.wait("SUCCEEDED")
    [record] = records(name)
    # What a command leaves behind that is killed while it follows.
    path = tmp_path / name / f".distlaunch/jobs/{record['launch_id']}.json"
    resource = None if name == "not-noted" else job["name"]
    path.write_text(json.dumps(record | {"is_open": True, "resource": resource}))
    outcome = "has ended (SUCCEEDED)"
    if name == "deleted":
        outcome = "no longer exists"
        connect(healthy.url).call("DELETE", "aiplatform", job["name"], region=emulators.REGION)
    done = submit(healthy, name, "--detach", "--", "0")
    assert done.returncode == 0, done.stderr
    interrupted = f"the job of the interrupted launch {record['launch_id']} {outcome}"
    assert f"{interrupted}; starting a new one" in done.stderr
    launches = records(name)
    assert len({launch["resource"] for launch in launches} - {None}) == 2
    assert [launch["is_open"] for launch in launches] == [False, False]


def test_killed_at_any_moment_and_run_again_makes_one_job(healthy, submit, python, tmp_path):
    for moment in range(MOMENTS):
        name = f"digits-{moment}"
        folder = write_project(tmp_path / name)
        code = kill_submit(python, folder, healthy, moment, "--", "600")
        assert code == -signal.SIGKILL, moment
        launch_id = submit(healthy, name).stdout.strip()
        [job] = [job for job in healthy.jobs() if job["displayName"] == name]
        assert job["labels"]["distlaunch-launch"] == launch_id, moment


def test_the_record_has_the_commit_and_no_program_of_gits_configuration_runs(
    healthy, submit, records, tmp_path
):
    folder, marker = write_project(tmp_path / "in-git"), tmp_path / "marker"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", folder]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "config", "core.fsmonitor", f"touch {marker};"], check=True)
    assert submit(healthy, "in-git").returncode == 0
    [record] = records("in-git")
    head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True)
    assert record["commit"] == head.strip()
    assert not marker.exists()
