"""Runs of a project in folders of their own, as comparisons and tuning start them."""

from __future__ import annotations

import json
import os

import pytest

from distlaunch.errors import UsageError
from distlaunch.local import run_folder
from distlaunch.local.compare.rounds import QuietView
from distlaunch.local.run_plan import load_project_job, plan_run
from distlaunch.local.runner import Runner
from distlaunch.ui.console import Console

REPORT = """\
import json, os
print("a line")
task = os.path.basename(os.environ["DISTLAUNCH_EVENTS"]).partition(".")[0]
facts = {"cores": sorted(os.sched_getaffinity(0)), "threads": os.environ["OMP_NUM_THREADS"]}
facts |= {"colour": os.environ["COLOUR"], "model": os.environ["AIP_MODEL_DIR"]}
open(f"{task}.json", "w").write(json.dumps(facts))
"""
CORES = sorted(os.sched_getaffinity(0))


def facts_of_run(project, capfd, *, workers: int, **choices) -> list[dict]:
    """Run report.py and return what each task reports."""
    (project / "report.py").write_text(REPORT)
    folder = run_folder.new(project, "runs/one")
    words = ["python", "report.py"]
    spec = plan_run(project, None, workers=workers, words=words, folder=folder, **choices)
    view = QuietView(Console(), [str(task) for task in spec.cluster.tasks()], "one")
    with view:
        assert Runner(spec, view).run().code == 0
    assert "a line" not in capfd.readouterr().out
    return [json.loads(path.read_text()) for path in sorted(project.glob("*.json"))]


@pytest.mark.parametrize(("workers", "cores"), [(1, CORES[:1]), (len(CORES) + 1, CORES)])
def test_cores_per_task(tmp_path, capfd, workers, cores):
    reports = facts_of_run(
        tmp_path, capfd, workers=workers, cpus_per_task=1, env={"COLOUR": "green"}
    )
    assert [each["cores"] for each in reports] == [cores] * workers
    assert {each["threads"] for each in reports} == {"1"}
    assert {each["colour"] for each in reports} == {"green"}
    assert {each["model"] for each in reports} == {f"{tmp_path}/runs/one/model/"}


def test_a_job_folder_of_its_own(tmp_path):
    folder = run_folder.new(tmp_path, "one")
    (tmp_path / "distlaunch.yaml").write_text(
        "name: digits\nmodule: json\nargs: [--job-dir, old, --epochs, '2']\n"
        "cluster: {chief: {machine: n1-standard-4}}\n"
    )
    job = load_project_job(tmp_path, [])
    spec = plan_run(tmp_path, job, workers=2, words=["--seed=1"], folder=folder)
    assert spec.program.args == ("--epochs", "2", "--seed=1")
    assert spec.folder.job_dir == str(tmp_path / "one")
    with pytest.raises(UsageError, match="--job-dir after '--': each run has a job folder of its"):
        plan_run(tmp_path, job, workers=2, words=["--job-dir=x"], folder=folder)
