"""A Slurm cluster, and commands of a project that launches jobs there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurm_cluster import SlurmCluster

JOB_FILE = """\
name: {name}
engine: slurm
module: program
slurm: {{folder: {jobs}, python: {python}, time: 20m}}
cluster: {{chief: {{}}, workers: {{count: 2}}}}
"""
PATIENCE = 90  # seconds with a job


class SlurmProject:
    """A project whose jobs run on a cluster."""

    def __init__(self, folder: Path, cluster: SlurmCluster, cli: Callable[..., Any]) -> None:
        self.folder = folder
        self.jobs = folder.parent / "jobs"
        self.cluster = cluster
        self.env = {**os.environ, **cluster.environment}
        self._cli = cli

    def write(self, program: str, *more: str) -> None:
        """Write the job file, with more lines, and the program of each task."""
        self.folder.mkdir(exist_ok=True)
        text = JOB_FILE.format(name=self.folder.name, jobs=self.jobs, python=sys.executable)
        (self.folder / "distlaunch.yaml").write_text("\n".join((text, *more)))
        (self.folder / "program.py").write_text(program)

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run `distlaunch` in the project."""
        done: subprocess.CompletedProcess[str] = self._cli(*words, cwd=self.folder, env=self.env)
        return done

    def submit(self, *words: object) -> str:
        """Submit the job and leave it running; return its id."""
        done = self.run("submit", "--no-check", "--detach", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def status(self, *words: object) -> dict[str, Any]:
        """Return what `status` knows of a job, by default the newest."""
        done = self.run("status", "--json", *words)
        assert done.returncode == 0, done.stderr
        status: dict[str, Any] = json.loads(done.stdout)
        return status

    def wait_for(self, *states: str, job: str = "") -> dict[str, Any]:
        """Return the status of a job once it is in one of some states."""
        deadline = time.monotonic() + PATIENCE
        while True:
            status = self.status(*filter(None, [job]))
            if status["state"] in states:
                return status
            assert time.monotonic() < deadline, (status["state"], self.logs(job))
            time.sleep(0.5)

    def wait_for_line(self, text: str, job: str) -> None:
        """Wait until a job's log has a text."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.logs(job):
            assert time.monotonic() < deadline, self.logs(job)
            time.sleep(0.2)

    def logs(self, job: str = "") -> str:
        """Return the whole log of a job, by default the newest."""
        done = self.run("logs", *filter(None, [job]))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def number(self, job: str) -> str:
        """Return Slurm's number of a job."""
        status = self.status(job)
        return str(status["configuration"]["scheduling"]["job"])


@pytest.fixture
def project(tmp_path: Path, slurm, cli) -> SlurmProject:
    """A project that launches jobs."""
    return SlurmProject(tmp_path / "digits", slurm, cli)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory, slurm) -> SlurmProject:
    """The project of the starter, which trains; its commands run in new processes."""
    folder = tmp_path_factory.mktemp("digits") / "digits"

    def run(*words: object, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "distlaunch", *map(str, words)]
        return subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, check=False
        )

    assert run("init", folder, cwd=folder.parent, env={**os.environ}).returncode == 0
    project = SlurmProject(folder, slurm, run)
    file = folder / "distlaunch.yaml"
    section = f"slurm: {{folder: {project.jobs}, python: {sys.executable}, time: 20m}}\n"
    file.write_text(f"{file.read_text()}\nengine: slurm\n{section}")
    return project
