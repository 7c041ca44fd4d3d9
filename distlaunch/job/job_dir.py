"""``--job-dir`` among a program's args, which names the job's folder on AI Platform and here.

Both spellings are read: ``--job-dir=VALUE`` and ``--job-dir VALUE``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from distlaunch.job.model import Job, Pool

JOB_DIR = "--job-dir"


def job_dir_in(args: Iterable[str]) -> str | None:
    """Return the value of the last ``--job-dir``, None if there is none."""
    found = None
    remaining = iter(args)
    for arg in remaining:
        name, equals, value = arg.partition("=")
        if name == JOB_DIR:
            found = (value if equals else next(remaining, None)) or found
    return found


def without_job_dir(args: Iterable[str]) -> Iterator[str]:
    """Return the args without any ``--job-dir``."""
    remaining = iter(args)
    for arg in remaining:
        if arg == JOB_DIR:
            next(remaining, None)
        elif not arg.startswith(f"{JOB_DIR}="):
            yield arg


def change_job_dir(args: Iterable[str], change: Callable[[str], str]) -> Iterator[str]:
    """Return the args with a function applied to each value of ``--job-dir``."""
    is_value = False
    for arg in args:
        name, equals, value = arg.partition("=")
        if is_value:
            yield change(arg)
        elif name == JOB_DIR and equals:
            yield f"{JOB_DIR}={change(value)}"
        else:
            yield arg
        is_value = arg == JOB_DIR and not is_value


def replace_job_dir(job: Job, job_dir: str) -> Job:
    """Return a job whose args name this folder where they named the chief's, in every pool."""
    before = job_dir_in(job.args)

    def changed(args: Iterable[str]) -> tuple[str, ...]:
        return tuple(change_job_dir(args, lambda value: job_dir if value == before else value))

    def with_job_dir(pool: Pool) -> Pool:
        if pool.program is None:
            return pool
        return replace(pool, program=replace(pool.program, args=changed(pool.program.args)))

    return replace(job, args=changed(job.args), cluster=job.cluster.map_pools(with_job_dir))
