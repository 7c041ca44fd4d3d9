"""What the tests of commands share."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from distlaunch.cli import main

from ..engines.vertex.conftest import no_credentials, serve, tls, trusted, user  # noqa: F401, TID252
from .cloud import TRAINER, Cloud

if TYPE_CHECKING:
    from pathlib import Path


class Done(NamedTuple):
    """The exit code and the streams of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a command in this process, by default in an empty folder."""

    def run_command(*words: object, cwd: Path = tmp_path) -> Done:
        monkeypatch.chdir(cwd)
        capfd.readouterr()
        code = main([str(word) for word in words])
        return Done(code, *capfd.readouterr())

    return run_command


@pytest.fixture
def project(tmp_path):
    """A project of a program that does what the trainer's chief does."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "program.py").write_text(TRAINER)
    return folder


@pytest.fixture
def train(run, project):
    """Run the program on this machine; return the run's id."""

    def train_once(loss: float, code: int = 0, *options: str) -> str:
        program = (sys.executable, "program.py", str(loss), str(code))
        done = run("local", "--workers", "1", *options, "--", *program, cwd=project)
        assert done.code == code, done.err
        return re.search(r"\.distlaunch/local/([\d-]+)", done.err)[1]

    return train_once


@pytest.fixture
def cloud(tmp_path, project):
    with Cloud(project, storage=tmp_path / "buckets") as cloud:
        yield cloud


@pytest.fixture
def job(cloud, project):
    """A job that wrote a model to its folder in a bucket."""
    created = cloud.launch(TRAINER, "digits-1", ["0.5", "0"], job_dir="gs://bucket/digits-1")
    job = cloud.wait(created)
    assert job["state"] == "JOB_STATE_SUCCEEDED", job
    cloud.record(project, "digits-1", job)
    return job
