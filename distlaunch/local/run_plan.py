"""What to run on this machine, from the project's job: for `local`, comparisons and tuning."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from distlaunch.errors import DistlaunchError, UsageError
from distlaunch.job.launch import job_dir_in, without_job_dir
from distlaunch.job.load import FILE_NAME, job_file_above, load_job_file
from distlaunch.job.model import Cluster, Machine, Pool
from distlaunch.job.overrides import Override
from distlaunch.job.tasks import Task
from distlaunch.local import run_folder
from distlaunch.local.debugger import DEBUGGED, Debugger, check_program
from distlaunch.local.host_resources import NO_GPU, this_machine
from distlaunch.resources import INSTALL_TENSORFLOW

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from distlaunch.job.model import Job
    from distlaunch.local.run_folder import RunFolder

    FaultAction = Literal["kill", "freeze"]

MAX_TASKS = 1_000
_TOO_MANY = f"expected no more than {MAX_TASKS:,} tasks on one machine"


_WHEN = re.compile(r"step=(?P<step>[0-9]{1,18})|(?P<seconds>[0-9]{1,9}(\.[0-9]{1,9})?)s", re.ASCII)


@dataclass(frozen=True, slots=True)
class TaskProgram:
    """What each task runs."""

    kind: Literal["module", "command", "image"]
    words: tuple[str, ...]  # the module, the program or the image, and its arguments
    credentials: str | None = None  # the file for Google's libraries in a container


@dataclass(frozen=True, slots=True)
class Fault:
    """A task to kill (SIGKILL) or to freeze (SIGSTOP), with all that it started."""

    action: FaultAction
    task: Task
    step: int | None = None  # the global step, or the first event after it
    seconds: float | None = None  # after the start of the tasks; either this or `step` is set

    @classmethod
    def parse(cls, action: FaultAction, text: str) -> Fault:
        """Read ``worker:0@step=40`` or ``worker:0@5s``, or raise UsageError."""
        name, _, when = text.rpartition("@")
        match = _WHEN.fullmatch(when)
        if not name or match is None:
            raise UsageError(
                f"--{action}: {text!r} is not TASK@step=N or TASK@SECONDSs, "
                "as worker:0@step=40 or chief@5s"
            )
        try:
            task = Task.parse(name)
        except UsageError as problem:
            raise UsageError(f"--{action}: {problem}") from None
        step, seconds = match["step"], match["seconds"]
        return cls(action, task, int(step) if step else None, float(seconds) if seconds else None)

    def __str__(self) -> str:
        at = f"step={self.step}" if self.seconds is None else f"{self.seconds:g}s"
        return f"--{self.action} {self.task}@{at}"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line sets of a run."""

    words: tuple[str, ...] = ()  # after those of the job's module, or a program that is run instead
    workers: int | None = None  # training tasks, including the chief; None: the job's
    devices: int | None = None  # virtual CPU devices of each task, in place of its GPUs
    job_dir: str | None = None  # a path or gs://…; it replaces one in the job's args
    resume: str | None = None  # the id or path of a run; empty for the newest
    restarts: int = 0  # of the whole group, after failures
    faults: tuple[Fault, ...] = ()  # injected in the first attempt
    debug_task: str | None = None  # that waits for a debugger
    audit: bool = False  # whether the program reports which examples it trains on
    shares_folder: bool = False  # whether all tasks of a script run in the project's folder
    is_contained: bool = False  # whether the job's image runs
    is_debug: bool = False
    # Of each training task; None: the cores are divided among the tasks. Where there are fewer
    # cores than tasks, no task is pinned and all share the cores.
    cpus_per_task: int | None = None

    def variables(self) -> dict[str, str]:
        """Return the variables that pass options on to the tasks."""
        variables = {"DISTLAUNCH_DEBUG": "1"} if self.is_debug else {}
        if self.devices:
            devices = str(self.devices)
            variables |= {"DISTLAUNCH_DEVICES": devices, "CUDA_VISIBLE_DEVICES": NO_GPU}
        return variables | (DEBUGGED if self.debug_task else {})


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A job to run on this machine."""

    folder: RunFolder
    cluster: Cluster
    program: TaskProgram
    work_dir: Path  # where the tasks run
    env: Mapping[str, str] = field(default_factory=dict)  # beside that of this process
    cores: tuple[int, ...] | None = None  # that the tasks may use; None: all of this process
    options: RunOptions = RunOptions()
    debugger: Debugger | None = None


def is_program(words: Sequence[str]) -> bool:
    """Whether the words after ``--`` are a program of its own."""
    return bool(words) and not words[0].startswith("-")


def load_project_job(project: Path, overrides: Sequence[str]) -> Job | None:
    """Return the project's job, or None where there is no job file.

    DistlaunchError is raised if the job file or an override is wrong.
    """
    path = project / FILE_NAME
    if not (path.exists() or path.is_symlink() or overrides):
        return None
    return load_job_file(path, [Override.parse(text) for text in overrides])


def local_cluster(job: Job | None, workers: int | None) -> Cluster:
    """Return the job's cluster with this number of training tasks (default: the job's).

    DistlaunchError is raised if there is neither a job nor a number, or if there are too many tasks
    for one machine.
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
    options: RunOptions,
    check: Callable[[Job], object] | None = None,
) -> RunSpec:
    """Return a run of the project's job, and create its folder.

    `check` is called before that, if the job's module runs in this Python. DistlaunchError is
    raised if there is nothing to run, no cluster is known, an option is wrong, TensorFlow is
    missing for the module, or the folder is not there or cannot be written.
    """
    in_words = job_dir_in(options.words)
    before_dashes = None if in_words else options.job_dir or options.resume or None
    program = _parse_program(project, job, options.words, before_dashes)
    cluster = local_cluster(job, options.workers)
    tasks = cluster.tasks()
    named = {str(fault): str(fault.task) for fault in options.faults}
    if options.debug_task:
        if options.is_contained:
            raise UsageError("--debug-task cannot be used with --docker; remove one of them")
        check_program(program.words, is_module=program.kind == "module")
        named[f"--debug-task {options.debug_task}"] = options.debug_task
    for option, task in named.items():
        if task not in map(str, tasks):
            choices = ", ".join(map(str, tasks))
            raise UsageError(f"{option}: no such task in this cluster; there are: {choices}")
    in_file = None
    if job and program.kind == "module":
        in_file = job_dir_in(job.args)
        if not options.is_contained:
            require_tensorflow()
            if check:
                check(job)
    env = {**(job.task_env if job else {}), **options.variables()}
    cores = None
    if options.cpus_per_task:
        training = sum(task.is_training for task in tasks)
        cores = this_machine(env).cores[: options.cpus_per_task * training]
    return RunSpec(
        folder=run_folder.choose(project, options.resume, in_words or options.job_dir, in_file),
        cluster=cluster,
        program=program,
        work_dir=project,
        env=env,
        cores=cores,
        options=options,
        debugger=Debugger.of_task(options.debug_task),
    )


def _parse_program(
    project: Path, job: Job | None, words: tuple[str, ...], job_dir: str | None
) -> TaskProgram:
    """Return what each task runs; `job_dir`, given before ``--``, replaces one in the job's args.

    DistlaunchError is raised if there is nothing to run, or the job file sets another backend of
    Keras for a module.
    """
    if is_program(words):
        return TaskProgram("command", words)
    if job is None:
        new = "'distlaunch init' makes a project, or give --workers N and a program after --"
        raise DistlaunchError(f"no distlaunch.yaml here: {job_file_above(project) or new}")
    backend = job.env.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        raise DistlaunchError(
            f"distlaunch.yaml: env.KERAS_BACKEND: a module runs with tensorflow, got {backend!r}: "
            "remove it, or run a program of your own after '--'"
        )
    # An option of that name is the script's own, and may be required.
    keeps_args = job_dir is None or job.is_script
    args = job.args if keeps_args else tuple(without_job_dir(job.args))
    return TaskProgram("module", (*job.main, *args, *words))
