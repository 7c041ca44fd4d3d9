"""A project whose job may be moved between regions, and commands that launch it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import emulators

from distlaunch.engines.vertex.client import connect
from distlaunch.engines.vertex.jobs import Jobs
from distlaunch.job.vertex.view import pools_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorflow_host import PythonHost

REGIONS = ("us-central1", "us-east4", "europe-west4")
JOB_FILE = """\
name: {name}
project: demo-project
region: us-central1
bucket: gs://demo-bucket
module: trainer
cluster:
  chief: {{machine: n1-standard-4}}
"""
MOVE = "scheduling: {max_wait: 1s, regions: [us-central1, us-east4, europe-west4]}\n"
MACHINES = ("n1-standard-4", "n1-standard-8", "e2-standard-4")
TRY_MACHINES = (
    "scheduling: {max_wait: 1s, machines: [{machine: n1-standard-8}, {machine: e2-standard-4}]}\n"
)
TRAINER = "import sys, time; sys.argv[1:] and time.sleep(float(sys.argv[-1])); print('trained')\n"
# Without the checks, which would take a fault or a moment that is meant for a launch.
SUBMIT = ("submit", "--image=localhost:5000/digits:1", "--no-check")
PROGRAM = ("distlaunch",)
KILLED = Path(__file__).with_name("submit") / "killed.py"


def write_project(folder: Path, *more: str) -> Path:
    """Write a project, whose job has the folder's name and more keys, into a folder; return it."""
    folder.mkdir(exist_ok=True)
    (folder / "distlaunch.yaml").write_text("".join((JOB_FILE.format(name=folder.name), *more)))
    (folder / "trainer.py").write_text(TRAINER)
    return folder


def jobs_of(
    emulator: emulators.Emulator, name: str, *, with_machines: bool = False
) -> list[tuple[str, str]]:
    """Return the regions and states of the jobs of a name in their order, one alive at a time.

    With machines, their types are returned in place of the regions.

    A call that was on its way when its command was killed may be carried out later, and then the
    younger job is cancelled before it starts.
    """
    session, matching = connect(emulator.url), f'displayName="{name}"'
    jobs = [
        (region, job)
        for region in REGIONS
        for job in Jobs(session, emulators.PROJECT, region).list("customJobs", matching)
    ]
    jobs.sort(key=lambda each: each[1]["createTime"])
    launches = [job["labels"]["distlaunch-launch"] for _, job in jobs]
    jobs = [
        (region, job)
        for number, (region, job) in enumerate(jobs)
        if launches[number] not in launches[:number]
        or job["state"] != "JOB_STATE_CANCELLED"
        or "startTime" in job
    ]
    for (_, earlier), (_, later) in pairwise(jobs):
        assert earlier["endTime"] <= later["createTime"], jobs
    places = [
        pools_of(job["jobSpec"]["workerPoolSpecs"])[0].machine if with_machines else region
        for region, job in jobs
    ]
    states = (job["state"].removeprefix("JOB_STATE_") for _, job in jobs)
    return list(zip(places, states, strict=True))


def kill_submit(
    python: PythonHost, folder: Path, emulator: emulators.Emulator, moment: int, *words: str
) -> int:
    """Run submit, kill it at a moment unless it ends before, and return its exit code."""
    shutil.copy(KILLED, folder)
    arguments = (str(moment), *SUBMIT, *words)
    return python.run("killed", *arguments, cwd=folder, env=emulator.environment).code


def start_submit(
    folder: Path, emulator: emulators.Emulator, *words: str, program: Sequence[str] = PROGRAM
) -> subprocess.Popen[str]:
    """Start submit beside other commands; `program` is a module and its arguments before it."""
    shutil.copy(KILLED, folder)
    return subprocess.Popen(
        [sys.executable, "-m", *program, *SUBMIT, *words],
        cwd=folder,
        env=emulator.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
