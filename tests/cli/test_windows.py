"""Commands on Windows: those that launch and look work, those that run tasks there name WSL."""

from __future__ import annotations

import json

import pytest
import windows

from .cloud import Cloud, write_project
from .test_submit import IMAGE, JOB_FILE

TRAINER = """\
import os, pathlib, sys, time
print("hello from", sys.argv[1:], flush=True)
folder = pathlib.Path(os.environ["AIP_MODEL_DIR"])
folder.mkdir(parents=True, exist_ok=True)
(folder / "model.keras").write_bytes(b"model")
if "--sleep" in sys.argv:
    time.sleep(600)
"""
NEED_POSIX = {
    ("local", "--workers", "2"): "'distlaunch local'",
    ("compare", "1,2"): "'distlaunch compare'",
    ("emulator", "--run-with", "process"): "'distlaunch emulator --run-with process'",
    ("tune", "--local"): "'distlaunch tune --local'",
    ("submit", "--engine", "slurm"): "engine: slurm",
    ("list", "--engine", "slurm"): "engine: slurm",
}


@pytest.fixture
def project(tmp_path):
    return write_project(tmp_path, JOB_FILE, TRAINER)


@pytest.fixture
def cloud(project):
    with Cloud(project) as cloud:
        yield cloud


def contents(folder):
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_a_project_and_its_image_are_the_same_as_on_linux(run, tmp_path):
    here, there = tmp_path / "linux", tmp_path / "windows"
    here.mkdir()
    there.mkdir()
    commands = [("init", "digits"), ("render",), ("check", "--offline", "--json")]
    created, _, rendered, checked = windows.sessions(
        there, commands[0], ("cd", "digits"), *commands[1:]
    )
    assert created == [*run(*commands[0], cwd=here)]
    assert rendered == [*run(*commands[1], cwd=here / "digits")]
    assert contents(there) == contents(here)
    done = run(*commands[2], cwd=here / "digits")
    assert [checked[0], json.loads(checked[1])] == [done.code, json.loads(done.out)]


def test_jobs_are_launched_looked_at_and_fetched_and_local_runs_name_wsl(project, cloud):
    """The arrow is no character of cp1252, in which a pipe of Windows is written."""
    looks = ("status", "logs", "list", "show")
    answers = windows.sessions(
        project,
        *NEED_POSIX,
        ("submit", IMAGE, "--notify", "cat >notified", "--", "→ ü"),
        ("fetch", "--output", "fetched"),
        ("submit", IMAGE, "--detach", "--", "--sleep"),
        *[(look,) for look in looks],
        ("cancel",),
        ("resubmit", "--detach"),
        DISTLAUNCH_ENDPOINT=cloud.url,
    )
    remedy = "needs Linux or macOS; on Windows use WSL\n"
    errors = [f"distlaunch: error: {what} {remedy}" for what in NEED_POSIX.values()]
    assert answers[: len(errors)] == [[1, "", error] for error in errors]
    submitted, fetched, detached, *looked, cancelled, again = answers[len(errors) :]
    assert submitted[0] == 0, submitted[2]
    assert "chief    | hello from ['--epochs=8', '? ü']\n" in submitted[1]
    assert "SUCCEEDED" in (project / "notified").read_text()
    assert (fetched[0], contents(project / "fetched")) == (0, {"model.keras": b"model"})
    name = detached[1].strip()
    assert [code for code, _, _ in looked] == [0] * len(looks)
    assert all(name in looked[looks.index(each)][1] for each in ("status", "list", "show"))
    assert cancelled[1].startswith(f"cancelling {name}; ")
    assert (again[0], again[1] not in ("", detached[1])) == (0, True)
