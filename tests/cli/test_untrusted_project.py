"""Every command looks at a project from elsewhere; only those documented to do so run it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import emulators
import pytest
from fake_registry import FakeRegistry

from distlaunch.cli import COMMANDS
from distlaunch.image.reference import Reference

from ..image import images  # noqa: TID252

PROGRAM = """\
#!/bin/sh
echo "$0 $*" >> {marks}
cat 2>/dev/null
"""
MODULE = """\
import sys
open({marks!r}, "a").write(f"{{__name__}} {{__file__}} {{sys.argv}}\\n")
"""
TEMPLATE = """\
FROM python:3.12-slim
# {{ cycler.__init__.__globals__.os.system('echo template >> MARKS') }}
"""
JOB_FILE = """\
name: digits
project: demo-project
region: us-central1
bucket: gs://demo-bucket
engine: ENGINE
module: trainer.task
env: {PATH: BIN, BASH_ENV: BIN/sh, PYTHONSTARTUP: BIN/sh, PYTHONPATH: HERE, GIT_SSH: BIN/ssh}
args: ["$(BIN/python)", "`BIN/python`"]
image: {repository: REGISTRY/digits, base: "REGISTRY/base:1"}
slurm: {folder: JOBS, python: BIN/python, options: ["--prolog=BIN/prolog"]}
cluster:
  chief: {machine: n1-standard-8}
  workers: {machine: n1-standard-8, count: 1}
"""
TUNING = """
tuning:
  metric: accuracy
  goal: maximize
  parameters: {lr: {type: double, min: 0.1, max: 1}}
  trials: 2
"""
REQUIREMENTS = """\
--no-binary :all:
--find-links .
-e .
./evilpkg
evilpkg @ file://HERE/evilpkg
"""
TOOLS = (
    *("docker", "gcloud", "git-remote-evil", "pip", "python", "python3", "sbatch", "scontrol"),
    *("sh", "sinfo", "squeue", "srun", "ssh", "start.py", "tensorboard", "uv", "docker-buildx"),
)
MODULES = (
    *("conftest", "distlaunch", "docker", "pip", "setup", "sitecustomize", "usercustomize", "uv"),
    *("yaml", "evilpkg/setup", "trainer/__init__", "trainer/task", "trainer/model", "trainer/data"),
    *("distlaunch_trainer/__init__", "distlaunch_trainer/options", "docs/conf"),
)
HOOKS = ("post-index-change", "pre-commit", "post-checkout", "reference-transaction")
# Each command, with what makes it do most without running anything of the project.
WORDS = {
    "build": [[], ["--no-push"]],
    "cancel": [[], ["digits-1"]],
    "check": [[], ["--offline"], ["--compare-machines"], ["--json"]],
    "diff": [["one", "two"]],
    "docs": [["--print", "check"]],
    "eject": [[]],
    "emulator": [["--port=-1"]],
    "fetch": [[], ["digits-1"]],
    "forecast": [["2", "4"]],
    "init": [["new"], ["--list"]],
    "list": [[], ["--local"]],
    "logs": [[], ["digits-1"]],
    "machines": [["list"]],
    "prune": [[]],
    "render": [[], ["--format=jobset"], ["--format=ai-platform"]],
    "resubmit": [["--detach"], ["digits-1"]],
    "setup": [["--dry-run"]],
    "shell": [["--print"]],
    "show": [["one"], ["one", "--html"]],
    "status": [[], ["digits-1"]],
    "submit": [["--dry-run"], ["--dry-run", "--no-check"], ["--detach"]],
    "teardown": [["--dry-run"]],
    "tensorboard": [["none"]],
    "tf-config": [["--hosts", "a,b"]],
    "tune": [["--dry-run"]],
}
THAT_RUN_THE_PROJECT = {"local", "compare"}


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    """An emulator and a registry."""
    folder = tmp_path_factory.mktemp("buckets")
    with emulators.serving(folder) as emulator, FakeRegistry() as registry:
        base = Reference.parse(f"{registry.host}/base:1")
        images.push(base, [images.tar_of(images.PYTHON_FILES)], images.ON_PATH)
        yield emulator, registry


@pytest.fixture
def marks(tmp_path):
    return tmp_path / "marks"


@pytest.fixture
def project(tmp_path, marks, services, monkeypatch):
    """Write a project whose every program leaves a mark."""

    def write(engine):
        folder, programs = tmp_path / "project", tmp_path / "project/bin"
        programs.mkdir(parents=True)

        def fill(text: str) -> str:
            registry = services[1].host
            values = {"ENGINE": engine, "BIN": programs, "HERE": folder, "MARKS": marks}
            values |= {"JOBS": tmp_path / "jobs", "REGISTRY": registry}
            for name, value in values.items():
                text = text.replace(name, str(value))
            return text

        for name in TOOLS:
            (programs / name).write_text(PROGRAM.format(marks=marks))
            (programs / name).chmod(0o755)
        for name in MODULES:
            file = folder / f"{name}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(MODULE.format(marks=str(marks)))
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.1\n")
        library = folder / "lib/python3.12/site-packages"
        library.mkdir(parents=True)
        (library / "evil.pth").write_text(f"import os; os.system('echo pth >> {marks}')\n")
        shutil.copy(folder / "sitecustomize.py", library)
        (folder / "requirements.txt").write_text(fill(REQUIREMENTS))
        (folder / "distlaunch.yaml").write_text(fill(JOB_FILE))
        (folder / "pip.conf").write_text(f"[global]\nfind-links = {folder}\n")
        (folder / "uv.toml").write_text(f"find-links = ['{folder}']\n")
        (folder / "pyproject.toml").write_text(
            "[build-system]\nrequires = []\nbuild-backend = 'setup'\nbackend-path = ['.']\n"
            "[project]\nname = 'evilpkg'\nversion = '1'\n"
        )
        _write_records(folder, str(programs / "python"), engine)
        _write_repository(folder, programs)
        monkeypatch.setenv("PATH", _path_of(tmp_path / "path", "git", "sh", "cat"))
        monkeypatch.setenv("DISTLAUNCH_ENDPOINT", services[0].url if engine == "vertex" else "")
        monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
        return folder

    return write


def _path_of(folder, *names):
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(shutil.which(name))
    return str(folder)


def _write_records(folder, program, engine):
    """Write records of runs and jobs that name a program, as if they had been made here."""
    jobs = folder / ".distlaunch/jobs"
    jobs.mkdir(parents=True)
    name = "projects/demo-project/locations/us-central1/customJobs/1"
    launch = folder.parent / "jobs/digits/digits-1"
    if engine == "slurm":
        name = str(launch)
        launch.mkdir(parents=True)
        (launch / "batch.sh").write_text(f"#!/bin/sh\n{program}\n")
        (launch / "launch.json").write_text(json.dumps({"program": [program]}))
    record = {
        "launch_id": "digits-1",
        "resource": name,
        "name": "digits",
        "project": "demo-project",
    }
    record |= {"region": "us-central1", "collection": "customJobs", "content": "", "request": {}}
    record |= {"engine": engine, "folder": str(launch.parents[1])}
    (jobs / "digits-1.json").write_text(json.dumps(record))
    for run in ("one", "two"):
        (folder / ".distlaunch/local" / run).mkdir(parents=True)
        text = json.dumps(
            {
                "id": run,
                "started": "2026-11-28T10:00:00Z",
                "program": [program],
                "command": [program],
                "job_dir": f"{folder}/.distlaunch/local/{run}",
            }
        )
        (folder / ".distlaunch/local" / run / "run.json").write_text(text)


def _write_repository(folder, programs):
    """Make the project a git repository whose configuration names programs."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", folder]
    subprocess.run([*git, "init", "-q"], check=True)
    (folder / ".gitattributes").write_text("* filter=evil diff=evil\n")
    subprocess.run([*git, "add", "trainer", ".gitattributes"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
    (folder / "trainer/task.py").touch()
    hooks = folder / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in HOOKS:
        shutil.copy(programs / "python", hooks / name)
    program = programs / "python"
    settings = {
        **dict.fromkeys(("core.fsmonitor", "core.sshCommand", "core.askPass"), program),
        **dict.fromkeys(("core.pager", "core.editor", "gpg.program", "diff.external"), program),
        **dict.fromkeys(("filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv"), program),
        "core.hooksPath": hooks,
        "remote.origin.uploadpack": program,
        "remote.origin.promisor": "true",
        "remote.origin.url": folder,
        "alias.status": f"!{program}",
        "credential.helper": program,
    }
    for name, value in settings.items():
        subprocess.run([*git, "config", name, str(value)], check=True)


def test_every_command_is_tried():
    assert WORDS.keys() | THAT_RUN_THE_PROJECT == COMMANDS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vertex", "slurm"])
def test_no_command_runs_a_program_of_the_project(project, run, marks, engine):
    folder = project(engine)
    job_file = (folder / "distlaunch.yaml").read_text()
    for command, ways in WORDS.items():
        (folder / "distlaunch.yaml").write_text(job_file + (TUNING if command == "tune" else ""))
        for words in ways:
            done = run(command, *words, cwd=folder)
            assert "Traceback" not in done.err
            assert not marks.exists(), f"{command} {words}: {marks.read_text()}"


@pytest.mark.parametrize("words", [["render"], ["check", "--offline"], ["build"]])
def test_a_template_of_the_project_runs_nothing(project, run, marks, words):
    folder = project("vertex")
    (folder / "templates").mkdir()
    (folder / "templates/Dockerfile.j2").write_text(TEMPLATE.replace("MARKS", str(marks)))
    (folder / "requirements.txt").write_text("")
    done = run(*words, cwd=folder)
    assert "Dockerfile.j2" in done.err + done.out
    assert not marks.exists()


def test_modules_in_the_current_folder_are_not_imported(project, marks):
    folder = project("slurm")
    command = [Path(sys.executable).with_name("distlaunch"), "check", "--offline"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("\nready\n"), done.stderr
    assert not marks.exists()
