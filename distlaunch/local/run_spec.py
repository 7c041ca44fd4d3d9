"""What `distlaunch local` is to run, as plain frozen data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from distlaunch.errors import DistlaunchError, UsageError
from distlaunch.job.launch import without_job_dir
from distlaunch.job.model import Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from distlaunch.job.model import Cluster, Job
    from distlaunch.local.run_folder import RunFolder

    FaultAction = Literal["kill", "freeze"]

_WHEN = re.compile(r"step=(?P<step>[0-9]{1,18})|(?P<seconds>[0-9]{1,9}(\.[0-9]{1,9})?)s", re.ASCII)


@dataclass(frozen=True, slots=True)
class Module:
    """A Python module that is run as ``python -m`` would run it."""

    name: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """Any program, with its arguments."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Container:
    """An image's entrypoint, with arguments for it."""

    image: str
    args: tuple[str, ...] = ()


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
class RunSpec:
    """A job to run on this machine."""

    folder: RunFolder
    cluster: Cluster
    program: Module | Command | Container
    work_dir: Path  # where the tasks run
    env: Mapping[str, str] = field(default_factory=dict)  # beside that of this process
    restarts: int = 0  # of the whole group, after failures
    faults: tuple[Fault, ...] = ()  # injected in the first attempt
    cores: tuple[int, ...] | None = None  # that the tasks may use; None: all of this process
    audit: bool = False  # whether the program reports which examples it trains on


def check_faults(faults: Iterable[Fault], tasks: Sequence[Task]) -> None:
    """Raise UsageError if a fault is for a task that is not in the cluster."""
    for fault in faults:
        if fault.task not in tasks:
            choices = ", ".join(map(str, tasks))
            raise UsageError(f"{fault}: no such task in this cluster; there are: {choices}")


def is_program(words: Sequence[str]) -> bool:
    """Whether the words after ``--`` are a program of its own."""
    return bool(words) and not words[0].startswith("-")


def parse_program(job: Job | None, words: tuple[str, ...], job_dir: str | None) -> Module | Command:
    """Return what each task runs; `job_dir`, given before ``--``, replaces one in the job's args.

    Raises
    ------
    DistlaunchError
        If there is nothing to run, or the job file sets another backend of Keras for a module.
    """
    if is_program(words):
        return Command(words)
    if job is None:
        raise DistlaunchError(
            "no distlaunch.yaml here: 'distlaunch init' makes a project, "
            "or give --workers N and a program after --"
        )
    backend = job.env.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        raise DistlaunchError(
            f"distlaunch.yaml: env.KERAS_BACKEND: a module runs with tensorflow, got {backend!r}: "
            "remove it, or run a program of your own after '--'"
        )
    # An option of that name is the script's own, and may be required.
    keeps_args = job_dir is None or job.is_script
    args = job.args if keeps_args else tuple(without_job_dir(job.args))
    module, *script = job.main
    return Module(module, (*script, *args, *words))
