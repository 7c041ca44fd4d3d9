"""What is printed, refused and left out on Slurm, without a cluster."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest

from distlaunch.engines.api import LogSelection
from distlaunch.engines.slurm.engine import SlurmEngine
from distlaunch.errors import UsageError

JOB_FILE = """\
name: digits
project: my-project
bucket: gs://my-bucket
module: program
env: {API_KEY: hunter2}
slurm: {folder: FOLDER, python: /usr/bin/python3}
cluster:
  chief: {machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: 2}}
  workers: {gpus: 2, machine: n1-standard-4, count: 1}
"""


@pytest.fixture
def run(cli, tmp_path):
    """Run a command in a project whose job file is for both engines."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "distlaunch.yaml").write_text(JOB_FILE.replace("FOLDER", str(tmp_path / "jobs")))
    (project / "program.py").write_text("print('hello')\n")
    (project / "notes.txt").write_text("not in the image\n")
    # No Slurm is found, even if this machine has one.
    env = {**os.environ, "PATH": str(tmp_path)}
    return lambda *words: cli(*words, cwd=project, env=env)


def test_a_dry_run_prints_the_batch_script_without_secrets(run, tmp_path):
    done = run("submit", "--engine=slurm", "--dry-run", "--no-check", "--", "--lr=0.1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "#!/bin/bash"
    assert "#SBATCH --gpus-per-task=2" in lines
    assert "export API_KEY='(hidden)'" in lines
    program = "/usr/bin/python3 -m program --lr=0.1 &"
    assert any(line.endswith(program) for line in lines)
    assert "program.py" in done.stderr
    assert "notes.txt" not in done.stderr
    assert not (tmp_path / "jobs").exists()


def test_check_lists_what_is_left_out_and_what_is_missing(run):
    done = run("check", "--engine=slurm", "--offline", "--json")
    report = json.loads(done.stdout)
    assert (report["engine"], report["price"], report["region"]) == ("slurm", None, None)
    text = run("check", "--engine=slurm", "--offline").stdout
    assert "left out   project, bucket, machine: of Vertex AI" in text
    done = run("check", "--engine=slurm", "--offline", "--json", "--set=web_access=true")
    assert "web-access-ignored" in [each["code"] for each in json.loads(done.stdout)["problems"]]
    done = run("check", "--engine=slurm", "--offline", "--json", "--set=slurm.folder=")
    assert [each["code"] for each in json.loads(done.stdout)["problems"]] == ["no-slurm-folder"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("submit --region us-central1", "--region has no meaning with engine: slurm"),
        ("submit --config config.yaml", "--config has no meaning with engine: slurm"),
        ("submit --job-dir gs://my-bucket/old", "on Slurm it is a path that all nodes share"),
        ("submit", "sinfo: no such command here; run distlaunch on a login node"),
        ("list", "squeue: no such command here; run distlaunch on a login node"),
        ("list --all", "--all: run 'squeue' for jobs that distlaunch did not submit"),
        ("submit --set slurm.options=[--comment=x]", "an option of sbatch that distlaunch does"),
        ("submit --set slurm.container=pyxis --no-check", "no image set for pyxis"),
    ],
)
def test_what_has_no_meaning_is_refused(run, words, problem, tmp_path):
    (tmp_path / "jobs/digits/digits-1").mkdir(parents=True)
    (tmp_path / "jobs/digits/digits-1/batch.sh").touch()
    command, *options = words.split()
    done = run(command, "--engine=slurm", *options)
    assert done.returncode in (1, 2)
    assert problem in done.stderr


def test_vertex_ai_needs_machines(run):
    done = run("submit", "--set=cluster.workers={gpus: 2}")
    assert done.returncode == 1
    assert "cluster.workers.machine: is missing" in done.stderr


def test_render_writes_the_batch_script_or_a_jobset(run, tmp_path):
    done = run("render", "--set=engine=slurm", "--output", tmp_path / "slurm")
    assert done.returncode == 0, done.stderr
    assert "sbatch" in done.stdout
    assert (tmp_path / "slurm" / "batch.sh").read_text().startswith("#!/bin/bash\n#SBATCH")
    done = run("render", "--format=vertex", "--set=cluster.chief={gpus: 2}")
    assert "cluster.chief.machine: is missing" in done.stderr
    repository = "--set=image.repository=us-docker.pkg.dev/my-project/training/digits"
    done = run("render", "--format=jobset", repository, "--output", tmp_path / "jobset")
    assert done.returncode == 0, done.stderr
    assert "kubectl apply -f" in done.stdout
    assert "kind: JobSet" in (tmp_path / "jobset" / "jobset.yaml").read_text()


def test_lines_of_a_log_have_no_times(tmp_path):
    job = SimpleNamespace(name=str(tmp_path), tasks=("chief",))
    given = {"since": {"since": 1.0}, "severity": {"severity": "ERROR"}}
    for option, values in (given | {"timestamps": {"needs_times": True}}).items():
        with pytest.raises(UsageError, match=f"--{option}: lines on Slurm have no time"):
            list(SlurmEngine(tmp_path, tmp_path).read_log(job, LogSelection(**values)))
