"""`distlaunch check` and the plan that `submit` shows: what a person and a script see."""

from __future__ import annotations

import json
import os

import pytest

from distlaunch.cli import main

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
NO_CREDENTIALS = {"GOOGLE_APPLICATION_CREDENTIALS": "/nowhere/at/all.json"}


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "digits"
    folder.mkdir()
    (folder / "distlaunch.yaml").write_text(JOB_FILE)
    (folder / "trainer.py").write_text("print('trained')\n")
    return folder


@pytest.fixture
def check(cli, project):
    def run(*words, emulator=None, command="check", **variables):
        env = (emulator.environment if emulator else os.environ) | variables
        return cli(command, *words, cwd=project, env=env)

    return run


def problems(done):
    return {each["code"]: each for each in json.loads(done.stdout)["problems"]}


def test_the_plan_is_one_screen_that_ends_with_the_verdict(check):
    done = check("--offline")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "digits: 4 tasks: chief + 3 workers in us-central1, project demo-project",
        "cluster    chief    1 x n1-standard-8 with 1 NVIDIA_TESLA_T4",
        "           workers  3 x n1-standard-8 with 1 NVIDIA_TESLA_T4",
    ]
    assert "image      localhost:5000/digits:1" in lines
    assert lines[-1] == "ready"
    assert len(lines) < 24


def test_an_error_has_location_remedy_and_code_and_is_exit_code_1(check):
    done = check("--offline", "--set", TOO_MANY)
    assert done.returncode == 1
    first, second, *warning = done.stdout.splitlines()[-6:-2]
    assert first.startswith("error      --set cluster.workers.accelerator.count: ")
    assert first.endswith("n1-standard-8 takes 1, 2 or 4 NVIDIA_TESLA_T4, not 3")
    assert second.endswith("[accelerator-count]")
    assert warning[1].endswith("[accelerators-unequal]")
    assert done.stdout.endswith("\n\nnot ready: 1 error, 1 warning\n")
    found = problems(check("--offline", "--json", "--set", TOO_MANY))
    assert found["accelerator-count"]["severity"] == "error"
    assert found["accelerator-count"]["remedy"]


@pytest.fixture
def check_at_google(project, google, monkeypatch, capfd):
    """Run `check` in this process with a fake Google; return the exit code and the streams."""

    def run(*words, **knobs):
        google(**knobs)
        monkeypatch.chdir(project)
        monkeypatch.setenv("XDG_CACHE_HOME", str(project / "cache"))
        return main(["check", *words]), capfd.readouterr()

    return run


def test_project_and_price_come_from_google(check_at_google):
    code, streams = check_at_google("--json", "--compare-machines")
    assert (code, streams.err) == (0, "")
    report = json.loads(streams.out)
    assert {each["where"] for each in report["problems"]} <= {"localhost:5000/digits:1"}
    assert report["price"]["an_hour"] is not None
    machines = [each["machine"] for each in report["machines"] if each["is_own"]]
    assert machines == ["n1-standard-8"]
    code, streams = check_at_google("--json", limits={"cpus": 8})
    codes = {each["code"] for each in json.loads(streams.out)["problems"]}
    assert (code, "quota-too-low" in codes) == (1, True)


def test_at_an_emulator_one_line_names_the_checks_that_were_skipped(project, monkeypatch, capfd):
    monkeypatch.chdir(project)
    words = ["check", "--endpoint=http://127.0.0.1:9"]
    assert main(words) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line for line in lines if "skipped" in line] == [
        "cloud      checks of project, bucket and quotas skipped: the endpoint is an emulator"
    ]
    assert main([*words, "--json"]) == 0
    at_emulator = json.loads(capfd.readouterr().out)
    assert main(["check", "--offline", "--json"]) == 0
    assert at_emulator == json.loads(capfd.readouterr().out)


def test_without_credentials_the_rest_is_checked_all_the_same(check):
    done = check("--json", **NO_CREDENTIALS)
    found = problems(done)
    assert found["no-credentials"]["severity"] == "warning"
    assert "/nowhere/at/all.json" in found["no-credentials"]["what"]
    assert done.returncode == 0


def test_submit_refuses_what_check_refuses_and_makes_nothing(check, emulator):
    here = emulator()
    done = check("--detach", "--set", TOO_MANY, emulator=here, command="submit")
    assert done.returncode == 1
    assert "distlaunch: error: --set cluster.workers.accelerator.count: " in done.stderr
    assert "[accelerator-count]" in done.stderr
    assert "nothing was built or submitted; use --no-check to submit anyway" in done.stderr
    assert done.stdout == ""
    result = check("--json", "--set", TOO_MANY, emulator=here, command="submit").stdout
    assert json.loads(result)["event"] == "refused"
    assert "accelerator-count" in {each["code"] for each in json.loads(result)["problems"]}
    assert "Traceback" not in done.stderr
    assert here.jobs() == []


def test_submit_without_credentials_prints_all_other_problems(check):
    done = check("--set", TOO_MANY, command="submit", **NO_CREDENTIALS)
    assert done.returncode == 1
    assert "[accelerator-count]" in done.stderr
    assert "[no-credentials]" in done.stderr
    alone = check(command="submit", **NO_CREDENTIALS)
    assert alone.returncode == 1
    assert alone.stderr.splitlines()[-1].startswith("distlaunch: error: /nowhere/at/all.json: ")


def test_no_check_submits_in_spite_of_errors(project, google, monkeypatch, capfd):
    here = google(limits={"cpus": 8})
    monkeypatch.chdir(project)
    assert main(["submit", "--detach"]) == 1
    assert main(["submit", "--detach", "--no-check"]) == 0
    assert "distlaunch: not checked" in capfd.readouterr().err.splitlines()
    assert len(here.jobs["customJobs"]) == 1


def test_an_invalid_file_of_prices_is_reported_with_its_location(check, project):
    (project / "distlaunch.prices.yaml").write_text("us-central1: {STANDARD: {n1-standard-8: x}}\n")
    done = check("--offline")
    assert done.returncode == 1
    assert done.stderr.startswith("distlaunch: error: distlaunch.prices.yaml:1:")
    assert set(problems(check("--offline", "--json"))) == {"job-file-invalid"}


def test_what_a_project_knows_better_than_the_catalogue_counts(check, project):
    assert check("--offline", "--set", TOO_MANY).returncode == 1
    (project / "distlaunch.catalogue.yaml").write_text(
        "machines: {n1-standard-8: {accelerators: {NVIDIA_TESLA_T4: [1, 3]}}}\n"
    )
    assert check("--offline", "--set", TOO_MANY).returncode == 0


def test_a_file_that_cannot_be_read_is_a_problem_to_a_script_too(check, project):
    (project / "distlaunch.yaml").write_text(JOB_FILE.replace("count: 3", "count: three"))
    expected = check("--offline")
    assert expected.returncode == 1
    assert expected.stderr.startswith(
        "distlaunch: error: distlaunch.yaml:9:92: cluster.workers.count"
    )
    done = check("--offline", "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, done.stderr, result["ready"]) == (1, "", False)
    [problem] = result["problems"]
    assert (problem["code"], problem["where"]) == ("job-file-invalid", "distlaunch.yaml:9:92")
    assert problem["what"].startswith("cluster.workers.count: expected a whole number")
    assert (
        result.keys() == json.loads(check("--json", "--image=x/y:1", "--config=no").stdout).keys()
    )
