"""What `--compare` and `--batch-sizes` compare: the same work on several clusters."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from distlaunch.errors import UsageError
from distlaunch.local.run_plan import MAX_TASKS, check_no_job_dir
from distlaunch.local.run_spec import is_program
from distlaunch.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.job.model import Job

FIT, TRAINER = "fit", "trainer"
FIT_PROJECT = "distlaunch_trainer.fit.project"
_ROWS_PER_REPLICA = 32  # the trainer's default
_GLOBAL_BATCH = "--global-batch-size"
_BATCH = "--batch-size"


@dataclass(frozen=True, slots=True)
class Variant:
    """One cluster and batch of a comparison.

    Attributes
    ----------
    workers
        Training tasks, including the chief.
    global_batch
        Rows of a step over all workers; None where the program sets it itself.
    is_fit
        Whether Keras's ``fit`` trains the project, in place of the trainer.
    words
        The arguments after those of the job.
    cores
        Cores of one worker that has as many as the most workers together; None for the others.
    """

    workers: int
    global_batch: int | None = None
    is_fit: bool = False
    words: tuple[str, ...] = ()
    name: str = ""
    cores: int | None = None

    @property
    def folder_name(self) -> str:
        """The name without spaces and punctuation."""
        return re.sub(r"\W+", "-", self.name).strip("-")


def plan_variants(
    job: Job | None, words: Sequence[str], compare: str | None, batch_sizes: str | None
) -> list[Variant]:
    """Return the variants in the order of the command line.

    Parameters
    ----------
    job
        The project's job, if there is one.
    words
        What is after ``--``.
    compare
        Numbers of workers, ``fit`` and ``trainer``, separated by commas (default: the job's
        number of workers).
    batch_sizes
        Global batches, separated by commas (default: one, for all variants).

    Raises
    ------
    UsageError
        If an item is wrong, there are fewer than two variants, or `words` have a ``--job-dir``.
    """
    check_no_job_dir(words)
    tasks = _tasks(job, compare)
    program = is_program(words) or job is None or job.is_script
    if program and (FIT in tasks or batch_sizes):
        option = "--batch-sizes" if batch_sizes else "--compare fit"
        what = "a program after '--'" if is_program(words) else "a script with fit()"
        raise UsageError(f"{option} needs the project's trainer, not {what}; --compare 1,2 runs it")
    counts = [1 if task in (FIT, TRAINER) else int(task) for task in tasks]
    if program:
        batches: list[int | None] = [None]
        rest = tuple(words)
    else:
        given = [*(job.args if job else ()), *words]
        batches = [*_batches(batch_sizes, given, max(counts))]
        rest = _without_batch(words)
    variants = [
        Variant(
            count,
            batch,
            task == FIT,
            rest if batch is None else (*rest, f"{_GLOBAL_BATCH}={batch}"),
            _name(task, count, batch if len(batches) > 1 else None),
        )
        for batch in batches
        for task, count in zip(tasks, counts, strict=True)
    ]
    if len(variants) < 2:
        raise UsageError(
            "one variant is nothing to compare: give --compare or --batch-sizes two values or more"
        )
    return variants


def with_whole_machine(variants: Sequence[Variant], cores: int) -> list[Variant]:
    """Return the variants and one worker on the cores of the most workers, if numbers differ."""
    one = {each.global_batch: each for each in variants if not each.is_fit}
    if cores < 2 or len({each.workers for each in variants}) == 1:
        return [*variants]
    name = f"1 worker on {cores} cores"
    added = [
        replace(each, workers=1, cores=cores, name=re.sub(r"^[^(]+\b", name, each.name))
        for each in one.values()
    ]
    return [*variants, *added]


def without_batch_options(job: Job) -> Job:
    """Return the job without the batch in its args, which each variant sets."""
    return replace(job, args=_without_batch(job.args))


def _tasks(job: Job | None, compare: str | None) -> list[str]:
    if compare is None:
        workers = sum(task.is_training for task in job.cluster.tasks()) if job else 1
        return [str(workers)]
    items = [item.strip() for item in compare.split(",")]
    for item in items:
        is_count = item.isascii() and item.isdecimal() and 1 <= int(item) <= MAX_TASKS
        if item not in (FIT, TRAINER) and not is_count:
            raise UsageError(
                f"--compare {compare}: {item!r} is neither a number of workers (1 to "
                f"{MAX_TASKS:,}) nor fit or trainer; e.g. --compare 1,2,4 or --compare fit,trainer"
            )
    counts = ["1" if item == TRAINER else item.lstrip("0") for item in items]
    if len(set(counts)) < len(counts):
        raise UsageError(f"--compare {compare}: each variant once (trainer is 1)")
    return items


def _batches(batch_sizes: str | None, given: Sequence[str], most_workers: int) -> list[int]:
    """Return the global batches: requested, or the one of the arguments, or the default."""
    if batch_sizes is None:
        rows, per_replica = _batch_in(given)
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


class _Quiet(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"after '--': {message}")


def _parser() -> ArgumentParser:
    parser = _Quiet(add_help=False, allow_abbrev=False)
    parser.add_argument(_GLOBAL_BATCH, type=int)
    parser.add_argument(_BATCH, type=int)
    return parser


def _batch_in(words: Sequence[str]) -> tuple[int | None, int | None]:
    """Return ``--global-batch-size`` and ``--batch-size`` of a program's arguments."""
    values, _ = _parser().parse_known_args(words)
    return values.global_batch_size, values.batch_size


def _without_batch(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(_parser().parse_known_args(words)[1])


def _name(task: str, count: int, batch: int | None) -> str:
    name = "fit()" if task == FIT else TRAINER if task == TRAINER else plural(count, "worker")
    return name if batch is None else f"{name} (global batch {batch})"
