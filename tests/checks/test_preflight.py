from __future__ import annotations

import subprocess
import sys

import pytest

from distlaunch.checks.preflight import CheckOptions, run_checks
from distlaunch.job.load import load_job
from distlaunch.submit.plan import LaunchRequest

FILE = """\
name: digits
project: mine-1234
region: us-central1
bucket: gs://mine
image: {uri: "us-docker.pkg.dev/mine-1234/training/digits:1"}
cluster:
  chief: {machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: 1}}
"""
OFFLINE = CheckOptions(offline=True)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "distlaunch.yaml").write_text(FILE)
    return tmp_path


def report(project, *sets, scope=OFFLINE):
    return run_checks(
        LaunchRequest(project, load_job(project, overrides=sets).job, overrides=sets), scope
    )


def codes(project, *sets):
    return [problem.code for problem in report(project, *sets).problems]


def test_what_google_cannot_take_is_told_with_its_path(project):
    tuning = "{metric: loss, goal: minimize, trials: 99999999999, parameters: {a: {values: [b]}}}"
    [found] = report(project, f"tuning={tuning}").problems
    assert (found.code, found.severity) == ("request-invalid", "error")
    assert found.where == "maxTrialCount"
    assert "99999999999" in found.what


def test_an_accelerator_that_googles_messages_do_not_know_may_be_a_new_one(project):
    [found] = report(project, "cluster.chief.accelerator.type=NVIDIA_Z9").problems
    assert (found.code, found.severity) == ("accelerator-unknown", "warning")


def test_googles_messages_are_left_alone_where_there_is_nothing_to_find(project):
    program = """
import sys
from distlaunch.__main__ import main
main()
sys.exit("google.protobuf" in sys.modules)
"""
    words = ["check", "--offline", "--quiet"]
    for sets, is_imported in (("labels.team=vision", False), ("vertex.labels.team=vision", True)):
        done = subprocess.run(
            [sys.executable, "-c", program, *words[:2], "--set", sets],
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (int(is_imported), "")


def test_errors_come_first_and_nothing_is_told_twice(project):
    sets = ("cluster.chief.machine=n1-standard-9", "region=us-central9", "labels.a=b")
    found = report(project, *sets, "image.uri=", "bucket=").problems
    severities = [each.severity for each in found]
    assert severities == sorted(severities)
    assert len({(each.where, each.what) for each in found}) == len(found)
    assert {"machine-unknown", "region-unknown"} <= {each.code for each in found}


def test_a_file_of_the_users_own_is_found_in_the_folder_or_named(project, tmp_path):
    sets = ("cluster.chief.accelerator.count=3",)
    assert codes(project, *sets) == ["accelerator-count"]
    own = tmp_path / "mine.yaml"
    own.write_text("machines: {n1-standard-8: {accelerators: {NVIDIA_TESLA_T4: [3]}}}\n")
    scope = CheckOptions(offline=True, catalogue=own)
    assert report(project, *sets, scope=scope).problems == ()
    own.rename(tmp_path / "distlaunch.catalogue.yaml")
    assert codes(project, *sets) == []
