"""A launch makes one job, whatever goes wrong on its way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import emulators
import pytest

from distlaunch.google.client import connect

JOB_FILE = """\
name: digits
project: demo-project
region: us-central1
bucket: gs://demo-bucket
module: trainer
cluster:
  chief: {machine: n1-standard-4}
"""
LONG = "import time; time.sleep(600)"  # the program of a job that has not ended by then
# Without the checks, which would take a fault or a moment that is meant for a launch.
SUBMIT = ("submit", "--image=localhost:5000/digits:1", "--no-check")
MOMENTS = 24  # eighteen until Google has the job, and some after that
KILLED = Path(__file__).with_name("killed.py")

# What may do better when it is tried again.
TRANSIENT = ("429", "500", "502", "503", "504", "reset", "lost", "expired")
FOLLOWING = ("get", "logs", "storage")  # the calls once there is a job


def made(folder, name="digits"):
    folder.mkdir()
    (folder / "distlaunch.yaml").write_text(JOB_FILE.replace("digits", name))
    (folder / "trainer.py").write_text("print('trained')\n")
    return folder


@pytest.fixture
def project(tmp_path):
    return made(tmp_path / "digits")


def submit(project, emulator, *words, **options):
    return subprocess.run(
        [sys.executable, "-m", "distlaunch", *SUBMIT, *words],
        cwd=project,
        env=emulator.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )


def records(project):
    paths = sorted((project / ".distlaunch/jobs").glob("*.json"))
    return [json.loads(path.read_text()) for path in paths]


def launched_in_spite_of(faults, folder, *words):
    """Submit against an emulator of its own that injects faults; return its output."""
    with emulators.running(made(folder), f"--faults={','.join(faults)}") as here:
        done = submit(folder, here, *words)
        assert done.returncode == 0, done.stderr
        [job] = here.jobs()
    [record] = records(folder)
    assert (record["resource"], record["is_open"]) == (job["name"], False)
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("calls", [("create",), ("list",), FOLLOWING], ids="+".join)
def test_what_passes_makes_one_job_and_no_difference(calls, tmp_path):
    def launched(fault):
        faults = [f"{fault}@{call}" for call in calls]
        faults += ["lost@create"] if calls == ("list",) else []  # it is request for nothing else
        words = () if calls == FOLLOWING else ("--detach",)
        return launched_in_spite_of(faults, tmp_path / fault, *words)

    with ThreadPoolExecutor() as several_at_once:  # most of it is waiting
        content = list(several_at_once.map(launched, TRANSIENT))
    if calls == FOLLOWING:
        assert [text.count("| trained\n") for text in content] == [1] * len(TRANSIENT)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["denied", "disabled", "quota", "404"])
def test_a_refusal_makes_no_job_and_leaves_nothing_open(fault, project, emulator):
    here = emulator("--faults", f"{fault}@create#*", project=project)
    done = submit(project, here)
    assert done.returncode == 1
    assert done.stderr.count("distlaunch: error: ") == 1
    assert "Traceback" not in done.stderr
    assert here.jobs() == []
    assert [record["is_open"] for record in records(project)] == [False]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["denied@list#1", "expired@list#1-2"])
def test_a_refused_look_up_after_a_lost_answer_makes_no_second_job(fault, project, emulator):
    (project / "trainer.py").write_text(LONG)
    here = emulator("--faults", f"lost@create,{fault}", project=project)
    first = submit(project, here, "--detach")
    assert first.returncode == 1
    assert "the job may have been created, but the look-up failed (" in first.stderr
    again = submit(project, here, "--detach")
    assert again.returncode == 0, again.stderr
    [job], [record] = here.jobs(), records(project)
    assert (record["resource"], record["is_open"]) == (job["name"], False)


def reopened(project, **changed):
    """Make the newest record what a command leaves behind that is killed while it follows."""
    record = max(records(project), key=lambda each: (each["time"], each["launch_id"]))
    path = project / f".distlaunch/jobs/{record['launch_id']}.json"
    path.write_text(json.dumps({**record, "is_open": True, **changed}))
    return record


@pytest.mark.slow
@pytest.mark.parametrize("state", ["ended", "ended before it was noted", "deleted"])
def test_an_open_launch_whose_job_is_over_starts_a_new_one(state, project, emulator):
    here = emulator(project=project)
    assert submit(project, here, "--detach").returncode == 0
    old = here.wait("SUCCEEDED")
    record = reopened(project, **({"resource": None} if "noted" in state else {}))
    if state == "deleted":
        region = emulators.REGION
        connect(here.url).call("DELETE", "aiplatform", old["name"], region=region)
    again = submit(project, here, "--detach")
    assert again.returncode == 0, again.stderr
    outcome = "no longer exists" if state == "deleted" else "has ended (SUCCEEDED)"
    expected = (
        f"the job of the interrupted launch {record['launch_id']} {outcome}; starting a new one"
    )
    assert expected in again.stderr
    assert again.stdout.strip() != record["launch_id"]
    assert len(here.jobs()) == (1 if state == "deleted" else 2)
    assert [each["is_open"] for each in records(project)] == [False, False]


def killed_and_again(moment, folder, emulator):
    """Submit, be killed at a moment, submit again and return that launch's id."""
    done = subprocess.run(
        [sys.executable, KILLED, str(moment), *SUBMIT],
        cwd=made(folder, f"digits-{moment}"),
        env=emulator.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return submit(folder, emulator, "--detach").stdout.strip()


@pytest.mark.slow
def test_killed_at_any_moment_and_run_again_makes_one_job(tmp_path, emulator):
    trainer = made(tmp_path / "trainer")
    (trainer / "trainer.py").write_text(LONG)  # a job that is over is not resumed
    here = emulator(project=trainer)
    with ThreadPoolExecutor(2) as two_at_once:
        content = list(
            two_at_once.map(
                lambda moment: killed_and_again(moment, tmp_path / str(moment), here),
                range(MOMENTS),
            )
        )
    launches = {job["displayName"]: job["labels"]["distlaunch-launch"] for job in here.jobs()}
    assert len(here.jobs()) == len(launches) == MOMENTS
    assert content == [launches[f"digits-{moment}"] for moment in range(MOMENTS)]
