"""What follows `--`: arguments for the job's module, or a program of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.errors import DistlaunchError
from distlaunch.job.job_dir import without_job_dir
from distlaunch.local.run_spec import Command, Module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.job.model import Job


def is_program(words: Sequence[str]) -> bool:
    """Whether the words after ``--`` are a program of its own."""
    return bool(words) and not words[0].startswith("-")


def program(job: Job | None, words: tuple[str, ...], job_dir: str | None) -> Module | Command:
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
