"""The report of a failed job: the first task that failed, the reason and what to do next."""

from __future__ import annotations

import time

import pytest

from distlaunch.engines.vertex.failure import find_failure
from distlaunch.engines.vertex.jobs import state

from ..json_schemas import load_checked  # noqa: TID252 - tests are no package
from .cloud import Cloud, number_of, objects

FAILS = """\
import json, os, pathlib, signal, sys, time
print(json.dumps({"severity": "WARNING", "message": "slow disk", "step": 3}), flush=True)
chief_is_up = pathlib.Path(sys.argv[1])
if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "worker":
    while not chief_is_up.exists():
        time.sleep(0.02)
    print(json.dumps({"severity": "ERROR", "message": "no pandas", "step": 3}), file=sys.stderr)
    import pandas_is_missing
lost = "trainer: error: this task lost its peers: another task ended"
signal.signal(signal.SIGTERM, lambda *_: sys.exit(lost))
chief_is_up.touch()
time.sleep(60)
"""
LOST = """\
import json, os, pathlib, sys, time
worker_has_failed = pathlib.Path(sys.argv[1])
if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "worker":
    print("OSError: [Errno 28] No space left on device", file=sys.stderr, flush=True)
    worker_has_failed.touch()
    time.sleep(60)
while not worker_has_failed.exists():
    time.sleep(0.02)
for _ in range(1200):
    print("a line on stderr", file=sys.stderr)
sys.exit("trainer: error: this task lost its peers: another task ended")
"""


# A program, and the reason of its failure. The texts are those of the real libraries.
READ_BUCKET = """\
from google.auth.credentials import AnonymousCredentials
from google.cloud.storage import Client
Client("p", AnonymousCredentials()).bucket("data").blob("train.tfrecord").download_as_bytes()
"""
REASONS = {
    "import argparse; argparse.ArgumentParser().parse_args(['--epoch'])": "the program does not",
    "raise MemoryError": "the task ran out of memory",
    "import sys; sys.exit('corrupted record at 12')": "the data cannot be read",
    "open('/dev/full', 'wb', buffering=0).write(b'checkpoint')": "a disk is full",
    "import no_such_module": "a Python module cannot be imported: no_such_module",
    "open('data/train.csv')": "a file is missing: [Errno 2] No such file or directory: 'data/",
    READ_BUCKET: "a permission is missing: storage.objects.get",
    "import os; os.kill(os.getpid(), 9)": "it was killed (SIGKILL)",
    "raise SystemExit(1)": "there is no log: the job's service account may have no perm",
    "raise ValueError('unknown')": None,
    "print(1); raise SystemExit(1)": None,
}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    with Cloud(tmp_path_factory.mktemp("cloud"), call_faults="denied@storage") as cloud:
        yield cloud


@pytest.fixture(scope="module")
def ended(cloud, tmp_path_factory):
    """Return jobs that failed at the same time, by their programs."""
    folder = tmp_path_factory.mktemp("marks")
    started = {program: cloud.launch(program, "", []) for program in REASONS}
    for name, program in {"up": FAILS, "failed": LOST}.items():
        started[program] = cloud.launch(program, "", *[[str(folder / name)]] * 2)
    return {program: cloud.wait(job) for program, job in started.items()}


@pytest.fixture
def failure(run, cloud):
    """Return a function that returns the failure of a job by `status`."""

    def find(job):
        done = run("status", job["name"], "--json", *cloud.options())
        return load_checked("show", done.out)["failure"]

    return find


def test_a_failed_job_names_the_first_task_its_lines_the_reason_and_the_remedy(
    run, cloud, ended, failure
):
    name, at = number_of(ended[FAILS]), cloud.options()
    module = "a Python module cannot be imported: pandas_is_missing"
    found = failure(ended[FAILS])
    assert (found["task"], found["reason"]) == ("worker:0", module)
    assert found["lines"][-1].endswith("No module named 'pandas_is_missing'")
    text = run("status", name, *at).out
    assert f"worker:0 failed first\nreason: {module}\nnext: add its package to " in text
    followed = run("logs", "--follow", name, *at)
    assert followed.code == 3
    assert f"error: worker:0 failed first\n    reason: {module}" in followed.err
    events = objects(run("logs", "--follow", "--json", name, *at).out)
    [event] = [event for event in events if event["event"] == "failure"]
    assert (event["task"], event["reason"]) == ("worker:0", module)
    tasks = {event["task"] for event in events if event["event"] == "line"}
    assert tasks >= {"chief", "worker:0", "vertex"}
    assert [event["state"] for event in events if event["event"] == "state"][-1] == "FAILED"


def test_lines_of_a_severity_and_above(run, cloud, ended):
    words = ("logs", number_of(ended[FAILS]), *cloud.options())
    everything = objects(run(*words, "--json").out)
    [warning, _] = [line for line in everything if line["severity"] == "WARNING"]
    assert warning["text"] == "slow disk"
    lines = run(*words, "--severity", "warning").out.splitlines()
    assert "chief    | slow disk" in lines
    assert not any("vertex   | Job" in line for line in lines)
    errors = run(*words, "--severity", "ERROR", "--task", "worker:0").out.splitlines()
    assert errors[:2] == ["worker:0 | no pandas", "worker:0 | Traceback (most recent call last):"]
    assert "vertex | no pandas" in run(*words, "--task", "vertex").out.splitlines()


def test_a_task_that_lost_its_peers_is_not_blamed_though_the_job_names_it(ended, failure):
    assert "workerpool0-0" in ended[LOST]["error"]["message"]
    found = failure(ended[LOST])
    assert (found["task"], found["reason"]) == ("worker:0", "a disk is full")
    assert found["lines"] == ["OSError: [Errno 28] No space left on device"]


@pytest.mark.parametrize("program", REASONS)
def test_the_reason_of_a_failure(program, ended, failure):
    found, reason = failure(ended[program]), REASONS[program]
    assert found["task"] == "chief"
    assert found["reason"] is None if reason is None else found["reason"].startswith(reason)
    is_logged = program != "raise SystemExit(1)"
    assert is_logged or found["remedy"].endswith("--role=roles/logging.logWriter'")


def test_a_job_that_ran_as_long_as_its_timeout(run, cloud, failure):
    job = cloud.launch("import time; time.sleep(600)", "", [], timeout=1)
    done = run("logs", "--follow", job["name"], *cloud.options())
    assert done.code == 3
    assert "reason: the job ran longer than its timeout\n    next: submit with a longer" in done.err
    assert failure(job)["task"] is None
    cancelled = cloud.launch("import time; time.sleep(600)", "", [], timeout=600)
    cloud.jobs().cancel(cancelled["name"])
    while not state(cancelled).is_terminal:
        time.sleep(0.05)
        cancelled = cloud.jobs().get(cancelled["name"])
    assert failure(cancelled) is None


def test_a_tuning_job_may_run_longer_than_the_timeout_of_its_trials(cloud):
    job = {
        "name": "projects/p/locations/us-central1/hyperparameterTuningJobs/1",
        "state": "JOB_STATE_CANCELLED",
        "startTime": "2026-11-23T10:00:00Z",
        "endTime": "2026-11-23T12:00:00Z",
        "trialJobSpec": {"scheduling": {"timeout": "3600s"}},
    }
    assert find_failure(cloud.jobs(), job) is None


# Errors of jobs in the words of Vertex AI, and the first failure.
LARGER = "Specify a machine with larger memory and try again."
STOCKOUT = "Resources are insufficient in region: us-central1. Try a different region or use a"
ERRORS = {
    f"Replicas low on memory: workerpool0. {LARGER}": (None, "the task ran out of memory"),
    "The replica workerpool1-0 ran out of memory and exited with a non-zero status of 137.": (
        "worker:0",
        "the task ran out of memory",
    ),
    "Internal error occurred for the current attempt": (
        None,
        "Vertex AI had an internal error, also when it retried the job",
    ),
    f"{STOCKOUT} different accelerator.": (None, "the machine was preempted"),
    "The replica workerpool1-0 exited with a non-zero status of 1. Termination reason: Error. "
    "KeyError: 1": ("worker:0", "a disk is full"),
}


@pytest.fixture(scope="module")
def failed(cloud):
    """Return a Spot job whose worker wrote a line that is not why it failed."""
    program = (
        "import sys, time\n"
        "sys.argv[1] == 'worker' and sys.exit('No space left on device')\n"
        "time.sleep(60)"
    )
    job = cloud.wait(cloud.launch(program, "", ["chief"], ["worker"]))
    job["jobSpec"]["scheduling"] = {"strategy": "SPOT"}
    return job


@pytest.mark.parametrize("message", ERRORS)
def test_a_cause_that_vertex_ai_names_decides(message, cloud, failed):
    report = find_failure(cloud.jobs(), {**failed, "error": {"message": message}})
    assert (report.task, report.reason) == ERRORS[message]
    assert bool(report.lines) is (report.task is not None)


def test_a_job_without_machines_has_no_task_to_blame(run, tmp_path):
    with Cloud(tmp_path, faults="stockout") as cloud:
        job = cloud.wait(cloud.launch("", "digits-1"))
        status = load_checked("show", run("status", job["name"], "--json", *cloud.options()).out)
    assert status["failure"]["task"] is None
    assert status["failure"]["reason"] == "the region has no machines of this type now"
    assert "another region" in status["failure"]["remedy"]
