from __future__ import annotations

import subprocess
import sys

import pytest

from distlaunch.checks.preflight import CheckOptions, run_checks
from distlaunch.checks.report import format_plan
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


def report(project, *overrides, options=OFFLINE):
    return run_checks(
        LaunchRequest(project, load_job(project, overrides=overrides).job, overrides=overrides),
        options,
    )


def codes(project, *overrides):
    return [problem.code for problem in report(project, *overrides).problems]


def test_protobuf_is_imported_only_where_fields_are_passed_through(project):
    program = """
import sys
from distlaunch.__main__ import main
main()
sys.exit("google.protobuf" in sys.modules)
"""
    for sets, is_imported in (("labels.team=vision", False), ("vertex.labels.team=vision", True)):
        done = subprocess.run(
            [sys.executable, "-c", program, "check", "--offline", "--set", sets],
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (int(is_imported), "")


def test_errors_come_first_and_each_problem_once(project):
    sets = ("cluster.chief.machine=n1-standard-9", "region=us-central9", "labels.a=b")
    found = report(project, *sets, "image.uri=", "bucket=").problems
    severities = [each.severity for each in found]
    assert severities == sorted(severities)
    assert len({(each.where, each.what) for each in found}) == len(found)
    assert {"machine-unknown", "region-unknown"} <= {each.code for each in found}


def test_arguments_of_a_changed_trainer_are_reported_as_not_checked(whole):
    assert "not checked" not in format_plan(report(whole.folder))
    whole.prepend("trainer/task.py", "# mine\n")
    changed = report(whole.folder, "args=[--odd]")
    assert "argument-unknown" not in {each.code for each in changed.problems}
    line = "args       not checked: trainer/task.py differs from the one that 'init' writes"
    assert line in format_plan(changed).splitlines()


def test_a_catalogue_is_read_from_the_folder_or_the_option(project, tmp_path):
    sets = ("cluster.chief.accelerator.count=3",)
    assert codes(project, *sets) == ["accelerator-count"]
    own = tmp_path / "mine.yaml"
    own.write_text("machines: {n1-standard-8: {accelerators: {NVIDIA_TESLA_T4: [3]}}}\n")
    options = CheckOptions(offline=True, catalogue=own)
    assert report(project, *sets, options=options).problems == ()
    own.rename(tmp_path / "distlaunch.catalogue.yaml")
    assert codes(project, *sets) == []
