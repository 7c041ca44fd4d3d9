"""What `distlaunch local` is to run, as plain frozen data, and what follows `--`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distlaunch.errors import DistlaunchError
from distlaunch.job.job_dir import without_job_dir

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from distlaunch.job.model import Cluster, Job
    from distlaunch.local.faults import Fault


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
class RunSpec:
    """A job to run on this machine."""

    name: str
    job_id: str
    cluster: Cluster
    program: Module | Command | Container
    work_dir: Path  # where the tasks run
    job_dir: str  # a local path or gs://…
    logs_dir: Path  # for the tasks' output and events; always on this machine
    env: Mapping[str, str] = field(default_factory=dict)  # beside that of this process
    restarts: int = 0  # of the whole group, after failures
    faults: tuple[Fault, ...] = ()  # injected in the first attempt
    audit: bool = False  # whether the program reports which examples it trains on


def is_program(words: Sequence[str]) -> bool:
    """Whether the words after ``--`` are a program of its own."""
    return bool(words) and not words[0].startswith("-")


def parse_program(job: Job | None, words: tuple[str, ...], job_dir: str | None) -> Module | Command:
    """Return what each task runs.

    Parameters
    ----------
    job
        The job of the project, if there is one.
    words
        The words after ``--``.
    job_dir
        The folder that was chosen before ``--``; it takes the place of one in the job file's args.

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
    args = job.args if job_dir is None else tuple(without_job_dir(job.args))
    return Module(job.module, args + words)
