"""`distlaunch check` and the plan that `submit` shows: what a person and a script see."""

from __future__ import annotations

import json
from functools import partial

import pytest

from distlaunch.emulator.emulator import Emulator

JOB_FILE = """\
name: digits
project: demo-project
region: us-central1
bucket: gs://demo-bucket
module: trainer
image: {uri: "localhost:5000/digits:1"}
cluster:
  chief: {machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: 1}}
  workers: {machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: 1}, count: 3}
scheduling: {timeout: 10h}
"""
TOO_MANY = "cluster.workers.accelerator.count=3"


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "digits"
    folder.mkdir()
    (folder / "distlaunch.yaml").write_text(JOB_FILE)
    (folder / "trainer.py").write_text("print('trained')\n")
    return folder


@pytest.fixture
def check(run, project):
    def run_here(*words, command="check"):
        return run(command, *words, cwd=project)

    return run_here


@pytest.fixture
def offline(check):
    return partial(check, "--offline")


def problems(done):
    return {problem["code"]: problem for problem in json.loads(done.out)["problems"]}


def test_the_plan_is_one_screen_that_ends_with_the_verdict(offline):
    done = offline()
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[:3] == [
        "digits: 4 tasks: chief + 3 workers in us-central1, project demo-project",
        "cluster    chief    1 x n1-standard-8 with 1 NVIDIA_TESLA_T4",
        "           workers  3 x n1-standard-8 with 1 NVIDIA_TESLA_T4",
    ]
    assert "image      localhost:5000/digits:1" in lines
    assert lines[-1] == "ready"
    assert len(lines) < 24


def test_an_error_has_location_remedy_and_code_and_is_exit_code_1(offline):
    done = offline("--set", TOO_MANY)
    assert done.code == 1
    first, second, *warning = done.out.splitlines()[-6:-2]
    assert first.startswith("error      --set cluster.workers.accelerator.count: ")
    assert first.endswith("n1-standard-8 takes 1, 2 or 4 NVIDIA_TESLA_T4, not 3")
    assert second.endswith("[accelerator-count]")
    assert warning[1].endswith("[accelerators-unequal]")
    assert done.out.endswith("\n\nnot ready: 1 error, 1 warning\n")
    problem = problems(offline("--json", "--set", TOO_MANY))["accelerator-count"]
    assert (problem["severity"], bool(problem["remedy"])) == ("error", True)


@pytest.fixture
def check_at_google(check, project, google, monkeypatch):
    """Run `check` with a fake Google."""

    def run_there(*words, **knobs):
        google(**knobs)
        monkeypatch.setenv("XDG_CACHE_HOME", str(project / "cache"))
        return check(*words)

    return run_there


def test_project_and_price_come_from_google(check_at_google):
    done = check_at_google("--json", "--compare-machines")
    assert (done.code, done.err) == (0, "")
    report = json.loads(done.out)
    assert {problem["where"] for problem in report["problems"]} <= {"localhost:5000/digits:1"}
    assert report["price"]["an_hour"] is not None
    machines = [machine["machine"] for machine in report["machines"] if machine["is_own"]]
    assert machines == ["n1-standard-8"]
    done = check_at_google("--json", limits={"cpus": 8})
    assert (done.code, "quota-too-low" in problems(done)) == (1, True)


def test_at_an_emulator_one_line_names_the_checks_that_were_skipped(check, offline):
    words = ("--endpoint=http://127.0.0.1:9",)
    done = check(*words)
    assert done.code == 0
    assert [line for line in done.out.splitlines() if "skipped" in line] == [
        "cloud      checks of project, bucket and quotas skipped: the endpoint is an emulator"
    ]
    assert json.loads(check(*words, "--json").out) == json.loads(offline("--json").out)


def test_without_credentials_the_rest_is_checked(check, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/at/all.json")
    done = check("--json")
    problem = problems(done)["no-credentials"]
    assert (done.code, problem["severity"]) == (0, "warning")
    assert "/nowhere/at/all.json" in problem["what"]
    done = check("--set", TOO_MANY, command="submit")
    assert done.code == 1
    assert "[accelerator-count]" in done.err
    assert "[no-credentials]" in done.err
    done = check(command="submit")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("distlaunch: error: /nowhere/at/all.json: ")


def test_submit_refuses_what_check_refuses_and_creates_nothing(check, project):
    with Emulator(project_dir=project) as emulator:
        words = ("--detach", "--set", TOO_MANY, "--endpoint", emulator.url)
        done = check(*words, command="submit")
        as_json = check(*words, "--json", command="submit")
        assert check("--endpoint", emulator.url, "--all", command="list").out == ""
    assert (done.code, done.out) == (1, "")
    assert "distlaunch: error: --set cluster.workers.accelerator.count: " in done.err
    assert "[accelerator-count]" in done.err
    assert "nothing was built or submitted; use --no-check to submit anyway" in done.err
    assert json.loads(as_json.out)["event"] == "refused"
    assert "accelerator-count" in problems(as_json)


def test_no_check_submits_in_spite_of_errors(check, google):
    fake = google(limits={"cpus": 8})
    assert check("--detach", command="submit").code == 1
    done = check("--detach", "--no-check", command="submit")
    assert done.code == 0
    assert "distlaunch: not checked" in done.err.splitlines()
    assert len(fake.jobs["customJobs"]) == 1


def test_the_prices_and_the_catalogue_of_a_project(offline, project):
    assert offline("--set", TOO_MANY).code == 1
    (project / "distlaunch.catalogue.yaml").write_text(
        "machines: {n1-standard-8: {accelerators: {NVIDIA_TESLA_T4: [1, 3]}}}\n"
    )
    assert offline("--set", TOO_MANY).code == 0
    (project / "distlaunch.prices.yaml").write_text("us-central1: {STANDARD: {n1-standard-8: x}}\n")
    done = offline()
    assert done.code == 1
    assert done.err.startswith("distlaunch: error: distlaunch.prices.yaml:1:")
    assert set(problems(offline("--json"))) == {"job-file-invalid"}


def test_a_file_that_cannot_be_read_is_a_problem_in_json(check, offline, project):
    (project / "distlaunch.yaml").write_text(JOB_FILE.replace("count: 3", "count: three"))
    done = offline()
    location = "distlaunch.yaml:9:92"
    assert done.code == 1
    assert done.err.startswith(f"distlaunch: error: {location}: cluster.workers.count")
    done = offline("--json")
    report = json.loads(done.out)
    assert (done.code, done.err, report["ready"]) == (1, "", False)
    [problem] = report["problems"]
    assert (problem["code"], problem["where"]) == ("job-file-invalid", location)
    assert problem["what"].startswith("cluster.workers.count: expected a whole number")
    other = check("--json", "--image=x/y:1", "--config=no")
    assert report.keys() == json.loads(other.out).keys()
