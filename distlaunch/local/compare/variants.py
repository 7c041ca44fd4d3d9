"""What is compared: the same work on several clusters, and with several batches."""

from __future__ import annotations

import re
from argparse import ArgumentError, ArgumentParser
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlaunch.errors import UsageError
from distlaunch.local.run_plan import MAX_TASKS, check_no_job_dir, is_program
from distlaunch.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.job.model import Job

_ROWS_PER_REPLICA = 32  # the trainer's default
_GLOBAL_BATCH = "--global-batch-size"


@dataclass(frozen=True, slots=True)
class Variant:
    """One cluster and batch of a comparison."""

    workers: int  # training tasks, including the chief
    global_batch: int | None = None  # of all workers; None where the program sets it itself
    words: tuple[str, ...] = ()  # the arguments after those of the job
    name: str = ""
    cores: int | None = None  # of one worker that has as many as the most workers together

    @property
    def folder_name(self) -> str:
        """The name without spaces and punctuation."""
        return re.sub(r"\W+", "-", self.name).strip("-")


def plan_variants(
    job: Job | None, words: Sequence[str], tasks: str | None, batch_sizes: str | None
) -> list[Variant]:
    """Return the variants in the order of the command line.

    `tasks` are numbers of workers (default: the job's), `batch_sizes` are global batches (default:
    one, for all variants), both separated by commas. UsageError is raised if one is wrong, if there
    are fewer than two variants, or if `words`, which are after ``--``, have a ``--job-dir``.
    """
    check_no_job_dir(words)
    counts = _counts(job, tasks)
    program = is_program(words) or job is None or job.is_script
    if program and batch_sizes:
        what = "a program after '--'" if is_program(words) else "a script with fit()"
        raise UsageError(
            f"--batch-sizes needs the project's trainer, not {what}; 'compare 1,2' runs it"
        )
    if program:
        batches: list[int | None] = [None]
        rest = tuple(words)
    else:
        given = [*(job.args if job else ()), *words]
        batches = [*_batches(batch_sizes, given, max(counts))]
        rest = split_batch(words)[-1]
    variants = [
        Variant(
            count,
            batch,
            rest if batch is None else (*rest, f"{_GLOBAL_BATCH}={batch}"),
            _name(count, batch if len(batches) > 1 else None),
        )
        for batch in batches
        for count in counts
    ]
    if len(variants) < 2:
        raise UsageError(
            "one variant is nothing to compare: give two numbers of workers or more, such as 1,2, "
            "or as many --batch-sizes"
        )
    return variants


def with_whole_machine(variants: Sequence[Variant], cores: int) -> list[Variant]:
    """Return the variants and one worker on the cores of the most workers, if numbers differ."""
    one = {each.global_batch: each for each in variants}
    if cores < 2 or len({each.workers for each in variants}) == 1:
        return [*variants]
    name = f"1 worker on {cores} cores"
    added = [
        replace(each, workers=1, cores=cores, name=re.sub(r"^[^(]+\b", name, each.name))
        for each in one.values()
    ]
    return [*variants, *added]


def _counts(job: Job | None, tasks: str | None) -> list[int]:
    if tasks is None:
        return [sum(task.is_training for task in job.cluster.tasks()) if job else 1]
    items = [item.strip() for item in tasks.split(",")]
    for item in items:
        if not (item.isascii() and item.isdecimal() and 1 <= int(item) <= MAX_TASKS):
            raise UsageError(
                f"{tasks}: {item!r} is no number of workers (1 to {MAX_TASKS:,}); e.g. 1,2,4"
            )
    counts = [int(item) for item in items]
    if len(set(counts)) < len(counts):
        raise UsageError(f"{tasks}: each number once")
    return counts


def _batches(batch_sizes: str | None, given: Sequence[str], most_workers: int) -> list[int]:
    """Return the global batches: requested, or the one of the arguments, or the default."""
    if batch_sizes is None:
        rows, per_replica, _ = split_batch(given)
        return [rows or (per_replica or _ROWS_PER_REPLICA) * most_workers]
    items = [item.strip() for item in batch_sizes.split(",")]
    for item in items:
        if not (item.isascii() and item.isdecimal() and 1 <= int(item) < 2**31):
            raise UsageError(f"--batch-sizes {batch_sizes}: {item!r} is not a number of rows")
        if int(item) < most_workers:
            raise UsageError(
                f"--batch-sizes {batch_sizes}: {plural(int(item), 'row')} for "
                f"{plural(most_workers, 'worker')}: each needs one or more"
            )
    if len(set(map(int, items))) < len(items):
        raise UsageError(f"--batch-sizes {batch_sizes}: each size once")
    return [int(item) for item in items]


def split_batch(words: Sequence[str]) -> tuple[int | None, int | None, tuple[str, ...]]:
    """Return ``--global-batch-size``, ``--batch-size`` and the other arguments of a program."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument(_GLOBAL_BATCH, dest="rows", type=int)
    parser.add_argument("--batch-size", dest="per_replica", type=int)
    try:
        values, rest = parser.parse_known_args(words)
    except ArgumentError as error:
        raise UsageError(f"after '--': {error}") from None
    return values.rows, values.per_replica, tuple(rest)


def _name(count: int, batch: int | None) -> str:
    name = plural(count, "worker")
    return name if batch is None else f"{name} (global batch {batch})"
