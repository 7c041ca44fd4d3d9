"""The batch script of a job, and its words for containers."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from distlaunch.engines.slurm.batch import batch_script, build_request
from distlaunch.job.launch import LaunchRequest
from distlaunch.job.model import Cluster, Image, Job, Machine, Pool, Slurm

GPU = Pool(Machine("", gpus=4), 3)
JOB = Job(
    "digits",
    Cluster(Pool(Machine("", gpus=4)), GPU, Pool(Machine("", gpus=0))),
    args=("--epochs=5", "--name=it's"),
    env={"PYTHONPATH": "src:/opt/lib", "NOTE": "two\nlines $HOME"},
    engine="slurm",
    slurm=Slurm(
        folder="/shared/jobs",
        python="/shared/venv/bin/python",
        partition="gpu",
        account="lab",
        time=43_201,
        options=("--exclusive",),
    ),
)


def script(job: Job = JOB, job_dir: str | None = None) -> str:
    launch = LaunchRequest(Path("/project"), job, job_dir)
    return batch_script(build_request(launch, "digits-1"), None)


def srun(job: Job) -> list[str]:
    (line,) = (line for line in script(job).splitlines() if line.startswith("srun "))
    return shlex.split(line.removesuffix(" &"))


def test_options_are_those_of_the_job():
    options = [line.partition(" ")[2] for line in script().splitlines() if line[:7] == "#SBATCH"]
    assert options == [
        "--job-name=digits",
        "--comment=digits-1",
        "--ntasks=5",
        "--gpus-per-task=4",
        "--partition=gpu",
        "--account=lab",
        "--time=721",
        '--output="/shared/jobs/digits/digits-1/task-logs/slurm.log"',
        "--open-mode=append",
        "--requeue",
        "--exclusive",
    ]


def test_variables_reach_the_tasks_as_they_are(tmp_path):
    lines = script().splitlines(keepends=True)
    start = next(number for number, line in enumerate(lines) if line.startswith("export "))
    end = next(number for number, line in enumerate(lines) if line.startswith("export PYTHONPATH"))
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    program = "".join([*lines[start : end + 1], f'{sys.executable} -c "{code}"'])
    done = subprocess.run(
        ["bash", "-c", program], env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=True
    )
    seen = json.loads(done.stdout)
    assert seen["NOTE"] == "two\nlines $HOME"
    code_folder = "/shared/jobs/digits/digits-1/code"
    assert seen["PYTHONPATH"] == f"{code_folder}:{code_folder}/src:/opt/lib"
    assert json.loads(seen["DISTLAUNCH_GPUS"]) == {"chief": 4, "worker": 4, "ps": 0}
    assert seen["DISTLAUNCH_JOB_DIR"] == "/shared/jobs/digits/digits-1"
    assert "DISTLAUNCH_OWN_FOLDERS" not in seen


def test_srun_starts_the_program_by_the_trainer_package():
    assert srun(JOB) == [
        *("srun", "--kill-on-bad-exit=1", "--distribution=block", "--ntasks=5"),
        *("/shared/venv/bin/python", "-m", "distlaunch_trainer.slurm", "--"),
        *("/shared/venv/bin/python", "-m", "trainer.task", "--epochs=5", "--name=it's"),
    ]


@pytest.mark.parametrize(
    ("container", "words"),
    [
        (
            "pyxis",
            [
                "--container-image=nvcr.io#nvidia/tensorflow:25.02-tf2-py3",
                "--container-mounts=/shared/jobs:/shared/jobs",
                "--container-workdir=/shared/jobs/digits/digits-1/code",
            ],
        ),
        (
            "apptainer",
            [
                *("apptainer", "exec", "--nv", "--bind", "/shared/jobs"),
                *("--pwd", "/shared/jobs/digits/digits-1/code"),
                "docker://nvcr.io/nvidia/tensorflow:25.02-tf2-py3",
            ],
        ),
    ],
)
def test_containers_run_the_image(container, words):
    image = Image(uri="nvcr.io/nvidia/tensorflow:25.02-tf2-py3")
    slurm = replace(JOB.slurm, container=container, python=None)
    found = srun(replace(JOB, image=image, slurm=slurm))
    assert found[4:-9] == words
    assert found[-9:-4] == ["python", "-m", "distlaunch_trainer.slurm", "--", "python"]


def test_a_script_has_a_working_folder_per_task_and_a_job_folder_elsewhere():
    text = script(replace(JOB, script="train.py"), "/shared/old")
    assert "export DISTLAUNCH_OWN_FOLDERS=1\n" in text
    assert "export DISTLAUNCH_JOB_DIR=/shared/old\n" in text
    assert "-m distlaunch_trainer.fit train.py" in text
