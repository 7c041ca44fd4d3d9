"""`distlaunch machines`, and jobs on what it starts."""

from __future__ import annotations

import io
import json
import re
import time

import pytest
from fake_google import Refused

from distlaunch.cli import machines
from distlaunch.engines.vertex.jobs import state

from ..json_schemas import load_checked  # noqa: TID252 - tests are no package
from .cloud import LABEL, Cloud

MISSING = Refused(404)
PATH = "/persistentResources/warm"
OPTIONS = ("--project", "demo-project", "--region", "us-central1")
JOB = """\
name: digits_small
bucket: gs://bucket
cluster: {chief: {machine: n1-standard-4}, workers: {machine: n1-standard-4, count: 2}}
"""
PRICES = "us-central1: {STANDARD: {n1-standard-4: 0.2}}\n"
BODY = {
    "displayName": "warm",
    "resourcePools": [{"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 3}],
    "labels": {"created-by": "distlaunch"},
}
LONG = "import time; time.sleep(600)"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    with Cloud(tmp_path_factory.mktemp("cloud"), faults="slow-states:0.3") as cloud:
        yield cloud


@pytest.fixture
def at(cloud, tmp_path):
    """A project's folder, and the options for a project of the test in the cloud."""
    (tmp_path / "distlaunch.yaml").write_text(JOB)
    (tmp_path / "distlaunch.prices.yaml").write_text(PRICES)
    return cloud.options(f"p{abs(hash(tmp_path.name)) % 10**9}")


def listed(run, at):
    return load_checked("machines", run("machines", "list", "--json", *at).out)


def submit(cloud, at, **more):
    """Create a job of a chief and two workers on `warm`."""
    container = {"imageUri": "a/b:1", "command": ["python", "-c", LONG]}
    machine = {"machineSpec": {"machineType": "n1-standard-4"}, "containerSpec": container}
    spec = {
        "workerPoolSpecs": [{**machine, "replicaCount": 1}, {**machine, "replicaCount": 2}],
        "persistentResourceId": "warm",
        **more,
    }
    body = {"displayName": "digits", "labels": {LABEL: "digits-1"}, "jobSpec": spec}
    return cloud.jobs(at[3]).create("customJobs", body, may_exist=False).job


def test_machines_are_started_listed_used_and_removed(run, cloud, at):
    done = run("machines", "up", "warm", "--yes", *at)
    assert (done.code, done.out) == (0, "persistent_resource: warm\n"), done.err
    plan = [" ".join(line.split()) for line in done.err.splitlines()]
    assert plan[1:4] == [
        "machines 3 x n1-standard-4",
        "price 0.60 USD an hour, 14.40 USD a day, until you take it down; without boot disks",
        "distlaunch: warm is coming up",
    ]
    again = run("machines", "up", "warm", *at)  # nothing is confirmed, as nothing is started
    assert (again.code, "exists, and has the machines of the job" in again.err) == (0, True)
    assert "coming up" not in again.err
    other = run("machines", "up", "warm", "--set", "cluster.workers.count=3", *at)
    assert other.err.splitlines()[-1] == (
        "distlaunch: error: warm exists, with other machines; pass another ID, or run "
        "'distlaunch machines down warm' first"
    )
    [warm] = listed(run, at)
    assert (warm["state"], warm["in_use"], warm["count"], warm["an_hour"]) == ("RUNNING", 0, 3, 0.6)
    assert warm["seconds"] > 0

    job = submit(cloud, at)
    while state(job) != "RUNNING":
        time.sleep(0.05)
        job = cloud.jobs().get(job["name"])
    table = run("machines", "list", *at).out.splitlines()
    assert re.match(r"warm  RUNNING  \d+ s ago  3 x n1-standard-4  ", table[1])
    assert "3 of 3  0.60 USD  0.00 USD" in table[1]
    heads, row = run("list", *at).out.splitlines()
    assert heads.endswith("MACHINES OF")
    assert row.endswith("persistent resource warm")
    shown = run("status", "digits-1", *at).out
    assert "\ncost         none: billed with persistent resource warm\n" in shown
    whole = load_checked("show", run("show", "digits-1", "--json", *at).out)
    assert (whole["persistent_resource"], whole["reservations"]) == ("warm", [])
    assert whole["cost"] is None

    refused = run("machines", "down", "warm", *at)
    line = f"distlaunch: error: warm has jobs, which --force cancels: digits ({job['name']})\n"
    assert (refused.code, refused.err) == (1, line)
    down = run("machines", "down", "warm", "--force", *at)
    assert (down.code, down.out) == (0, "warm is down\n"), down.err
    assert cloud.wait(job)["state"] == "JOB_STATE_CANCELLED"
    assert listed(run, at) == []
    gone = run("machines", "down", "warm", *at)
    assert "error: no persistent resource warm in project" in gone.err


def test_a_job_on_reserved_machines_is_listed_with_them(run, cloud, at):
    name = "projects/p/zones/us-central1-a/reservations/cpus"
    affinity = {"reservationAffinityType": "SPECIFIC_RESERVATION", "values": [name]}
    machine = {"machineType": "n1-standard-4", "reservationAffinity": affinity}
    container = {"imageUri": "a/b:1", "command": ["python", "-c", ""]}
    pool = {"machineSpec": machine, "containerSpec": container, "replicaCount": 1}
    submit(cloud, at, workerPoolSpecs=[pool], persistentResourceId="")
    assert run("list", *at).out.splitlines()[1].endswith(f"  reservation {name}")
    shown = run("status", "digits-1", *at).out
    assert f"\nmachines of  reservation {name}\n" in shown
    [job] = json.loads(run("list", "--json", *at).out)
    assert (job["reservations"], job["persistent_resource"]) == ([name], None)


def test_a_dry_run_and_a_missing_terminal_start_nothing(run, at):
    done = run("machines", "up", "warm", "--dry-run", *at)
    assert json.loads(done.out) == BODY
    named = json.loads(run("machines", "up", "--dry-run", *at).out)  # by the job's name
    assert named["displayName"] == "digits-small"
    unknown = run("machines", "up", "--dry-run", "--set=cluster.chief.machine=x9-mega-4", *at)
    assert "price      unknown for x9-mega-4, until you take it down" in unknown.err
    refused = run("machines", "up", *at)
    assert (refused.code, "pass --yes to start them" in refused.err) == (2, True)
    assert listed(run, at) == []


@pytest.mark.parametrize(("answer", "code"), [("n", 130), ("y", 0)])
def test_on_a_terminal_the_start_is_confirmed(run, at, monkeypatch, answer, code):
    terminal = io.StringIO(f"{answer}\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    done = run("machines", "up", "warm", *at)
    assert (done.code, "start these machines as warm? [y/N]: " in done.err) == (code, True)
    assert [each["id"] for each in listed(run, at)] == ([] if code else ["warm"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("Warm_1",), "'Warm_1' is not an id: at most 63 of a-z, 0-9 and -, a letter first"),
        (("--set", "reservation=any"), "cannot use a reservation; add --set reservation="),
        (("--set", "engine=slurm"), "engine: slurm: persistent resources are Vertex AI's"),
    ],
)
def test_what_cannot_be_started(run, at, words, message):
    places = at[:2] if "engine=slurm" in words else at
    done = run("machines", "up", *words, *places)
    assert (done.code, message in done.err) == (2, True), done.err


def test_ctrl_c_leaves_machines_coming_up(run, at, monkeypatch):
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(machines.time, "sleep", interrupt)
    done = run("machines", "up", "warm", "--yes", *at)
    assert done.code == 130
    assert "'distlaunch machines down warm' removes it" in done.err
    [warm] = listed(run, at)
    assert (warm["id"], warm["state"]) == ("warm", "PROVISIONING")


def test_a_lost_response_does_not_start_machines_twice(run, tmp_path):
    with Cloud(tmp_path, call_faults="lost@create#1") as cloud:
        (tmp_path / "distlaunch.yaml").write_text(JOB)
        done = run("machines", "up", "warm", "--yes", *cloud.options())
        assert (done.code, len(listed(run, cloud.options()))) == (0, 1), done.err


@pytest.mark.parametrize(
    ("operation", "resource", "message"),
    [
        ({"done": True, "error": {"message": "No A100."}}, {}, "could not do it: No A100."),
        ({}, {"state": "ERROR", "error": {"message": "Broken."}}, "warm is ERROR: Broken."),
        ({"done": True}, MISSING, "warm is gone"),  # someone removed it
    ],
)
@pytest.mark.usefixtures("at")
def test_machines_that_do_not_come_up(run, google, operation, resource, message):
    existing = iter([MISSING, resource, resource])
    google(
        answers={
            PATH: lambda: next(existing),
            "/persistentResources": {"name": "projects/1/operations/1", **operation},
            "/operations/1": operation,
        }
    )
    done = run("machines", "up", "warm", "--yes", *OPTIONS)
    assert (done.code, message in done.err) == (1, True), done.err
