"""What to run on this machine, from the project's job: for `local`, comparisons and tuning."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from distlaunch.errors import DistlaunchError, UsageError
from distlaunch.job.launch import job_dir_in
from distlaunch.job.load import FILE_NAME, load_job_file
from distlaunch.job.model import Cluster, Machine, Pool
from distlaunch.job.overrides import Override
from distlaunch.local.host_resources import this_machine
from distlaunch.local.run_spec import Module, RunSpec, parse_program
from distlaunch.resources import INSTALL_TENSORFLOW

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from distlaunch.job.model import Job
    from distlaunch.local.run_folder import RunFolder

MAX_TASKS = 1_000
_TOO_MANY = f"expected no more than {MAX_TASKS:,} tasks on one machine"


def load_project_job(project: Path, overrides: Sequence[str]) -> Job | None:
    """Return the project's job, or None where there is no job file.

    Raises
    ------
    DistlaunchError
        If the job file or an override is wrong.
    """
    path = project / FILE_NAME
    if not (path.exists() or path.is_symlink() or overrides):
        return None
    return load_job_file(path, [Override.parse(text) for text in overrides])


def local_cluster(job: Job | None, workers: int | None) -> Cluster:
    """Return the job's cluster with this number of training tasks (default: the job's).

    Raises
    ------
    UsageError
        If there is neither a job nor a number, or the number is too large.
    DistlaunchError
        If the job file has too many tasks for one machine.
    """
    if job is None and workers is None:
        raise UsageError("no distlaunch.yaml here: pass the number of tasks with --workers N")
    if workers and workers > MAX_TASKS:
        raise UsageError(f"--workers {workers}: {_TOO_MANY}")
    cluster = job.cluster if job else Cluster(Pool(Machine("local")))
    cluster = cluster.with_training_tasks(workers) if workers else cluster
    if cluster.task_count > MAX_TASKS:
        raise DistlaunchError(
            f"distlaunch.yaml: cluster: {cluster.task_count:,} tasks in all; {_TOO_MANY}"
        )
    return cluster


def require_tensorflow() -> None:
    """Raise DistlaunchError if TensorFlow is not installed in this environment."""
    if find_spec("tensorflow") is None:
        raise DistlaunchError(f"TensorFlow is not installed here; run {INSTALL_TENSORFLOW}")


def check_no_job_dir(words: Sequence[str], what: str = "run") -> None:
    """Raise UsageError for a job folder among the words after ``--`` of several runs or trials."""
    if job_dir_in(words):
        raise UsageError(
            f"--job-dir after '--': each {what} has a job folder of its own; remove it"
        )


def plan_run(
    project: Path,
    job: Job | None,
    *,
    workers: int | None,
    words: Sequence[str],
    folder: RunFolder,
    env: Mapping[str, str] | None = None,
    cpus_per_task: int | None = None,
    cores: Sequence[int] | None = None,
) -> RunSpec:
    """Return a run of the project's job in a job folder of its own.

    Parameters
    ----------
    project
        The folder in which the tasks run.
    job
        The job of `load_project_job`.
    workers
        Training tasks, including the chief (default: the job's).
    words
        Arguments after those of the job's module, or a program that is run instead.
    folder
        Where the run writes; it replaces a ``--job-dir`` in the job's args.
    env
        Variables beside those of the job, which they override.
    cpus_per_task
        Cores of each training task (default: the run's cores are divided among them). Where there
        are fewer cores than tasks, no task is pinned and all share the cores.
    cores
        The cores that the run may use (default: all that this process may use).

    Raises
    ------
    UsageError
        If `words` have a ``--job-dir``, or no cluster is known.
    DistlaunchError
        If there is nothing to run, or TensorFlow is missing for the job's module.
    """
    check_no_job_dir(words)
    program = parse_program(job, tuple(words), folder.job_dir)
    cluster = local_cluster(job, workers)
    if isinstance(program, Module):
        require_tensorflow()
    variables = {**(job.env if job else {}), **(env or {})}
    if cpus_per_task is not None:
        usable = this_machine(variables).cores if cores is None else cores
        training = sum(task.is_training for task in cluster.tasks())
        cores = usable[: cpus_per_task * training]
    return RunSpec(
        folder=folder,
        cluster=cluster,
        program=program,
        work_dir=project,
        env=variables,
        cores=None if cores is None else tuple(cores),
    )
