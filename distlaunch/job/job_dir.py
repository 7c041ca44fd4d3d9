"""``--job-dir`` among a program's args: ``--job-dir=VALUE`` or ``--job-dir VALUE``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from distlaunch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from distlaunch.job.model import Job, Pool

JOB_DIR = "--job-dir"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def check_scheme(job_dir: str) -> None:
    """Raise a UsageError if a job folder is a URI, but not ``gs://…``."""
    match = _SCHEME.match(job_dir)
    if match and match[0] != "gs://":
        raise UsageError(
            f"{JOB_DIR} {job_dir}: unsupported URI scheme {match[0]}; expected a local path or "
            "gs://BUCKET/FOLDER"
        )


def job_dir_in(args: Iterable[str]) -> str | None:
    """Return the value of the last ``--job-dir``, None without one."""
    values: list[str] = []
    list(change_job_dir(args, values.append))
    return next(filter(None, reversed(values)), None)


def without_job_dir(args: Iterable[str]) -> Iterator[str]:
    """Yield the args without any ``--job-dir``."""
    return change_job_dir(args, lambda _: None)


def change_job_dir(args: Iterable[str], change: Callable[[str], str | None]) -> Iterator[str]:
    """Yield the args with a function applied to each value of ``--job-dir``; None removes it."""
    remaining = iter(args)
    for arg in remaining:
        name, equals, value = arg.partition("=")
        if name != JOB_DIR:
            yield arg
            continue
        job_dir = change(value if equals else next(remaining, ""))
        if job_dir is not None:
            yield from (f"{JOB_DIR}={job_dir}",) if equals else (JOB_DIR, job_dir)


def replace_job_dir(job: Job, job_dir: str) -> Job:
    """Return a job whose args name another folder where they named the chief's, in every pool."""
    before = job_dir_in(job.args)

    def changed(args: Iterable[str]) -> tuple[str, ...]:
        return tuple(change_job_dir(args, lambda value: job_dir if value == before else value))

    def change_pool(pool: Pool) -> Pool:
        if pool.program is None:
            return pool
        return replace(pool, program=replace(pool.program, args=changed(pool.program.args)))

    return replace(job, args=changed(job.args), cluster=job.cluster.map_pools(change_pool))
