"""Jobs of small programs on a Slurm cluster: launched once, followed, failed, cancelled."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HELLO = """\
import json, os, socket, sys, time
config = json.loads(os.environ["TF_CONFIG"])["task"]
name = f"{config['type']} {config['index']}"
print(f"hello from {name}, restart {os.environ['DISTLAUNCH_RESTARTS']}", *sys.argv[1:], flush=True)
"""
WAIT = HELLO + "time.sleep(float(sys.argv[-1]))\n"
FAIL = (
    HELLO
    + "time.sleep(0.5)\nif name == 'worker 1': sys.exit('boom: no such label')\n"
    + ("time.sleep(60)\n")
)
METRIC = """\
import json, os, sys
value = float(sys.argv[-1].partition("=")[2])
if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "chief":
    with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w") as file:
        file.write(json.dumps({"score": str(-(value - 0.25) ** 2), "global_step": "1"}))
"""
KILLS = 20
USER = "daemon"  # which every Debian has
SYSTEM_PYTHON = "/usr/bin/python3"  # which every user may run


def test_a_job_is_followed_from_its_start(project):
    project.write(HELLO)
    done = project.run("submit", "--no-check", "--", "--lr=0.1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "chief    | hello from chief 0, restart 0 --lr=0.1",
        "worker:0 | hello from worker 0, restart 0 --lr=0.1",
        "worker:1 | hello from worker 1, restart 0 --lr=0.1",
    ]
    assert "state SUCCEEDED" in done.stderr
    status = project.status()
    assert status["tasks"] == "chief + 2 workers"
    folder = Path(status["job_dir"])
    assert folder.parent == project.jobs / "digits"
    assert json.loads((folder / "end.json").read_text())["code"] == 0
    assert (folder / "code" / "program.py").read_text() == HELLO
    listed = json.loads(project.run("list", "--json").stdout)
    assert [job["id"] for job in listed] == [status["id"]]
    assert sorted(project.logs().splitlines()) == sorted(done.stdout.splitlines())


def test_what_slurm_forgets_is_in_the_folder(project, monkeypatch):
    project.write(HELLO)
    job = project.submit()
    project.wait_for("SUCCEEDED")
    # A cluster whose queue is empty, as after MinJobAge.
    commands = project.folder / "bin"
    commands.mkdir()
    (commands / "squeue").write_text("#!/bin/sh\n")
    (commands / "squeue").chmod(0o755)
    project.env["PATH"] = f"{commands}:{os.environ['PATH']}"
    status = project.status(job)
    assert status["state"] == "SUCCEEDED"
    assert status["seconds"] is not None


def test_a_failed_task_is_named_with_its_last_lines(project):
    project.write(FAIL)
    done = project.run("submit", "--no-check")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "worker:1 failed first" in done.stderr
    assert "boom: no such label" in done.stderr
    failure = project.status()["failure"]
    assert (failure["task"], failure["lines"][-1]) == ("worker:1", "boom: no such label")


def test_a_cancelled_job_ends_and_is_resubmitted(project):
    project.write(WAIT)
    job = project.submit("--", "100")
    project.wait_for("RUNNING")
    done = project.run("cancel", job)
    assert done.returncode == 0, done.stderr
    project.wait_for("CANCELLED", job=job)
    (project.folder / "program.py").unlink()  # the job has a copy
    again = project.run("resubmit", job, "--", "0")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "chief    | hello from chief 0, restart 0 100 0" in again.stdout
    assert project.run("diff", job, project.status()["id"]).returncode == 0


def test_a_requeued_job_counts_its_restarts(project):
    project.write(WAIT)
    job = project.submit("--", "5")
    project.wait_for_line("chief 0, restart 0", job)
    project.cluster.requeue(project.number(job))
    project.wait_for("SUCCEEDED", job=job)
    assert "chief    | hello from chief 0, restart 1 5" in project.logs(job)


def test_submit_is_killed_at_any_moment_and_each_launch_has_one_job(project):
    project.write(HELLO)
    times = random.Random(7)  # noqa: S311 - not a secret
    command = [sys.executable, "-m", "distlaunch", "submit", "--no-check", "--detach"]
    for _ in range(KILLS):
        process = subprocess.Popen(
            command,
            cwd=project.folder,
            env=project.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(times.uniform(0.2, 1.2))
        process.send_signal(signal.SIGKILL)
        process.wait()
    project.submit()
    own = [job for job in project.cluster.jobs() if job[2].startswith("digits-")]
    folders = {path.name for path in (project.jobs / "digits").iterdir()}
    launches = Counter(comment for _, _, comment in own if comment in folders)
    assert set(launches.values()) == {1}
    records = [*(project.folder / ".distlaunch" / "jobs").glob("*.json")]
    created = [json.loads(path.read_text()) for path in records]
    assert {record["launch_id"] for record in created if record["resource"]} == {*launches}


def test_two_users_share_a_folder(project):
    project.jobs.mkdir(mode=0o777)
    project.jobs.chmod(0o1777)
    project.write(HELLO)
    file = project.folder / "distlaunch.yaml"
    text = file.read_text().replace(sys.executable, SYSTEM_PYTHON)
    file.write_text(text)
    project.submit()
    other = project.folder.parent / "other"
    shutil.copytree(project.folder, other, ignore=shutil.ignore_patterns(".distlaunch"))
    for path in (*other.parents, other):
        if path.is_relative_to(Path("/tmp")) and path != Path("/tmp"):
            path.chmod(0o755)
    shutil.chown(other, USER)
    # It may read this Python, which may be in a folder of root.
    capability = "+dac_read_search"
    become = ("--clear-groups", f"--inh-caps={capability}", f"--ambient-caps={capability}")

    def run(*words):
        return subprocess.run(
            [
                *("setpriv", f"--reuid={USER}", f"--regid={USER}", *become),
                *(sys.executable, "-m", "distlaunch", *words),
            ],
            cwd=other,
            env={**project.env, "HOME": str(other), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    done = run("submit", "--no-check")
    assert done.returncode == 1
    assert "permission denied); set slurm.folder to a folder of yours" in done.stderr
    assert json.loads(run("list", "--json").stdout) == []
    own_folder = text.replace(f"{project.jobs}", f"{project.jobs}/{USER}")
    (other / "distlaunch.yaml").write_text(own_folder)
    done = run("submit", "--no-check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "chief    | hello from chief 0" in done.stdout
    assert len(json.loads(run("list", "--json").stdout)) == 1
    assert len(json.loads(project.run("list", "--json").stdout)) == 1


def test_a_search_runs_its_trials_as_jobs(project):
    tuning = (
        "tuning: {metric: score, goal: maximize, trials: 4, parallel_trials: 2, algorithm: grid, "
        "parameters: {x: {type: double, values: [0.0, 0.25, 0.5, 1.0]}}}"
    )
    project.write(METRIC, tuning)
    done = project.run("tune", "--no-check", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["state"] == "SUCCEEDED"
    trials = {trial["id"]: trial["parameters"] for trial in result["trials"]}
    assert len(trials) == 4
    assert trials[result["best"]] == {"x": "0.25"}


def test_what_slurm_refuses_is_reported_before_a_submit(project):
    project.write(HELLO)
    done = project.run("check", "--json", "--set=slurm.partition=gpus")
    problems = {each["code"]: each for each in json.loads(done.stdout)["problems"]}
    assert problems["slurm-partition"]["remedy"] == "the cluster has main"
    done = project.run("check", "--json", "--set=slurm.time=2h", "--set=cluster.chief.gpus=1")
    problems = {each["code"]: each for each in json.loads(done.stdout)["problems"]}
    longer = "2 h is longer than the 1 h of the partition"
    assert problems["slurm-limit"]["what"] == longer
    feature = "--set=slurm.options=[--constraint=a100]"
    done = project.run("check", "--json", feature)
    problems = {each["code"]: each for each in json.loads(done.stdout)["problems"]}
    assert "feature" in problems["slurm-refused"]["what"].lower()
    done = project.run("submit", feature, "--no-check")
    assert (done.returncode, done.stdout) == (1, "")
    assert "sbatch: " in done.stderr
    assert not [*(project.jobs / "digits").iterdir()]
    assert project.run("check").returncode == 0
