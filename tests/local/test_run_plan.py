"""What is run of a project: program, cores, variables and folder."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from distlaunch.errors import DistlaunchError, UsageError
from distlaunch.job.model import Cluster, Job, Machine, Pool
from distlaunch.job.tasks import Task
from distlaunch.local.compare.rounds import QuietView
from distlaunch.local.run_plan import Fault, RunOptions, TaskProgram, plan_run
from distlaunch.local.runner import Runner
from distlaunch.ui.console import Console

REPORT = """\
import json, os
print("a line")
task = os.path.basename(os.environ["DISTLAUNCH_EVENTS"]).partition(".")[0]
facts = {"cores": sorted(os.sched_getaffinity(0)), "threads": os.environ["OMP_NUM_THREADS"]}
facts |= {"devices": os.environ["DISTLAUNCH_DEVICES"], "model": os.environ["AIP_MODEL_DIR"]}
open(f"{task}.json", "w").write(json.dumps(facts))
"""
CORES = sorted(os.sched_getaffinity(0))


def job(*args: str, **env: str) -> Job:
    return Job("digits", Cluster(Pool(Machine("any"))), "trainer.task", args, env=env)


def program(project, of, *words: str, job_dir: str | None = None):
    """Return what a task of a job runs."""
    return plan_run(project, of, RunOptions(words, workers=1, job_dir=job_dir)).program


@pytest.mark.parametrize(("workers", "cores"), [(1, CORES[:1]), (len(CORES) + 1, CORES)])
def test_cores_per_task_and_devices(tmp_path, capfd, workers, cores):
    (tmp_path / "report.py").write_text(REPORT)
    words = ("python", "report.py")
    options = RunOptions(words, workers, devices=3, job_dir="runs/one", cpus_per_task=1)
    spec = plan_run(tmp_path, None, options)
    with QuietView(Console(), [str(task) for task in spec.cluster.tasks()], "one") as view:
        assert Runner(spec, view).run().code == 0
    assert "a line" not in capfd.readouterr().out
    reports = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json"))]
    assert [each["cores"] for each in reports] == [cores] * workers
    assert {each["threads"] for each in reports} == {"1"}
    assert {each["devices"] for each in reports} == {"3"}
    assert {each["model"] for each in reports} == {f"{tmp_path}/runs/one/model/"}


@pytest.mark.parametrize("of", [job("--epochs", "5"), job(KERAS_BACKEND="torch"), None])
def test_first_word_without_a_dash_is_a_program(tmp_path, of):
    words = ("python", "any.py", "--workers", "3")
    assert program(tmp_path, of, *words) == TaskProgram("command", words)


def test_a_module_runs_keras_on_tensorflow_alone(tmp_path):
    with pytest.raises(DistlaunchError) as refused:
        program(tmp_path, job(KERAS_BACKEND="torch"))
    assert str(refused.value) == (
        "distlaunch.yaml: env.KERAS_BACKEND: a module runs with tensorflow, got 'torch': "
        "remove it, or run a program of your own after '--'"
    )
    expected = TaskProgram("module", ("trainer.task",))
    assert program(tmp_path, job(KERAS_BACKEND="tensorflow")) == expected


@pytest.mark.parametrize("args", [("--job-dir", "a"), ("--job-dir=a",)])
def test_arguments_follow_those_of_the_file_of_which_a_folder_given_before_is_left_out(
    tmp_path, args
):
    by_file = job("--epochs", "5", *args, "--seed", "1")
    kept = ("trainer.task", "--epochs", "5", "--seed", "1", "--more")
    assert program(tmp_path, by_file, "--more", job_dir="b") == TaskProgram("module", kept)
    assert program(tmp_path, by_file) == TaskProgram("module", ("trainer.task", *by_file.args))
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


def test_a_script_runs_under_fit_and_keeps_its_own_option_for_a_folder(tmp_path):
    by_file = replace(job("--job-dir=own"), script_module="a.task")
    words = ("distlaunch_trainer.fit", "-m", "a.task", "--job-dir=own", "--more")
    expected = TaskProgram("module", words)
    assert program(tmp_path, by_file, "--more", job_dir="b") == expected
    by_file = replace(job("--epochs", "5"), script="train.py")
    words = ("distlaunch_trainer.fit", "train.py", "--epochs", "5", "--more")
    assert program(tmp_path, by_file, "--more") == TaskProgram("module", words)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("worker:0@step=40", Fault("kill", Task("worker", 0), step=40)),
        ("chief@step=0", Fault("kill", Task("chief"), step=0)),
        ("ps:1@5s", Fault("kill", Task("ps", 1), seconds=5.0)),
        ("chief@0.25s", Fault("kill", Task("chief"), seconds=0.25)),
        ("chief@0s", Fault("kill", Task("chief"), seconds=0.0)),
    ],
)
def test_fault(text, fault):
    parsed = Fault.parse("kill", text)
    assert (parsed, str(parsed)) == (fault, f"--kill {text}")


@pytest.mark.parametrize(
    "text",
    ["", "@5s", "worker:0", "worker:0@", "worker:0@5", "chief@step=", "chief@step=-1",
     "chief@step=1.5", "chief@-5s", "chief@infs", "chief@1e3s", "chief@٣s", "chief@5s\n"],
)  # fmt: skip
def test_malformed_fault(text):
    with pytest.raises(UsageError) as refusal:
        Fault.parse("freeze", text)
    assert str(refusal.value) == (
        f"--freeze: {text!r} is not TASK@step=N or TASK@SECONDSs, as worker:0@step=40 or chief@5s"
    )
