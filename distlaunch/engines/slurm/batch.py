"""A launch → what is submitted to Slurm: its data, and the batch script."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.job.overrides import job_data
from distlaunch.job.tasks import POOL_ROLES, TASK_TYPES
from distlaunch.template import render_template

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.model import Job

_TASK_MODULE = "distlaunch_trainer.slurm"
# As in a local run: not the backend of the login shell, and sets of one order in all tasks.
_DEFAULT_ENV = {"KERAS_BACKEND": "tensorflow", "PYTHONHASHSEED": "0"}
_MINUTE = 60  # seconds: the unit of Slurm's limits


def build_request(launch: LaunchRequest, launch_id: str) -> dict[str, Any]:
    """Return a launch as plain data: the job, its folders, and what the batch script has."""
    job, folder = launch.job, launch.slurm_folder(launch_id)
    code = f"{folder}/code"
    cluster = Counter(task.type for task in job.cluster.tasks())
    gpus = {
        role.task_type: pool.machine.task_gpus
        for role, pool in zip(POOL_ROLES, job.cluster.pools, strict=True)
        if pool and pool.count
    }
    job_dir = launch.job_dir_of(launch_id)
    variables = {
        "DISTLAUNCH_LAUNCH_ID": launch_id,
        "DISTLAUNCH_LAUNCH_FOLDER": folder,
        "DISTLAUNCH_JOB_DIR": job_dir,
        "DISTLAUNCH_CLUSTER": json.dumps({kind: cluster[kind] for kind in TASK_TYPES}),
        "DISTLAUNCH_GPUS": json.dumps(gpus),
        **({"DISTLAUNCH_OWN_FOLDERS": "1"} if job.is_script else {}),
    }
    env = {name: value for name, value in job.task_env.items() if name != "PYTHONPATH"}
    return {
        "launch_id": launch_id,
        "launch_folder": folder,
        "job_dir": job_dir,
        "tasks": job.cluster.describe(),
        "options": list(_sbatch_options(job, launch_id, folder, max(gpus.values()))),
        "env": _DEFAULT_ENV | env | variables,
        "python_path": _python_path(job, code),
        "srun": list(_srun_words(job, code, has_gpus=any(gpus.values()))),
        "job": job_data(job),
    }


def batch_script(request: Mapping[str, Any], project: Path | None) -> str:
    """Return the batch script of a request, by the project's template if it has one."""
    return render_template("slurm.sh", project, **{key: request[key] for key in _IN_SCRIPT})


_IN_SCRIPT = ("launch_id", "launch_folder", "tasks", "options", "env", "python_path", "srun")


def _sbatch_options(job: Job, launch_id: str, folder: str, gpus: int) -> Iterator[str]:
    slurm = job.slurm
    yield f"--job-name={job.name}"
    yield f"--comment={launch_id}"
    yield f"--ntasks={job.cluster.task_count}"
    if gpus:
        yield f"--gpus-per-task={gpus}"
    for name in ("partition", "account"):
        if value := getattr(slurm, name):
            yield f"--{name}={value}"
    limit = slurm.time or job.scheduling.timeout
    if limit:
        yield f"--time={-(-limit // _MINUTE)}"
    log = f"{folder}/task-logs/slurm.log".replace("%", "%%")  # which begins a pattern of sbatch
    yield f'--output="{log}"'
    yield "--open-mode=append"
    yield "--requeue"
    yield from slurm.options


def _python_path(job: Job, code: str) -> str:
    """Return the folders of modules: the code, and those of the job in it."""
    paths = filter(None, job.env.get("PYTHONPATH", "").split(":"))
    return ":".join([code, *(path if path.startswith("/") else f"{code}/{path}" for path in paths)])


def python_of(job: Job) -> str:
    """Return the Python that the tasks run: by default this one, or that of the container."""
    python = job.slurm.python or ("python" if job.slurm.container else sys.executable)
    return str(Path(python).expanduser()) if python.startswith("~") else python


def _srun_words(job: Job, code: str, *, has_gpus: bool) -> Iterator[str]:
    """Yield the command that starts all tasks; the nodes are filled one after the other."""
    slurm, image, python = job.slurm, job.image.uri or "", python_of(job)
    yield from ("srun", "--kill-on-bad-exit=1", "--distribution=block")
    yield f"--ntasks={job.cluster.task_count}"
    folder = str(Path(code).parents[2])  # of all jobs: an earlier one's may be the job folder
    if slurm.container == "pyxis":  # https://github.com/NVIDIA/pyxis#usage
        yield f"--container-image={image.replace('/', '#', 1)}"
        yield f"--container-mounts={folder}:{folder}"
        yield f"--container-workdir={code}"
    elif slurm.container == "apptainer":
        yield from ("apptainer", "exec", *(["--nv"] if has_gpus else []))
        yield from ("--bind", folder, "--pwd", code, f"docker://{image}")
    yield from (python, "-m", _TASK_MODULE, "--", python, "-m", *job.main, *job.args)
