"""Log entries of a job → lines of its tasks."""

from __future__ import annotations

import time
from contextlib import nullcontext
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from distlaunch.errors import UsageProblem
from distlaunch.google import times
from distlaunch.google.client import PATIENCE
from distlaunch.google.jobs import parse_name
from distlaunch.google.logs import (
    PLATFORM,
    POOLS,
    POOLS_WITH_REDUCTION_SERVER,
    Query,
    check_task,
    without_trial,
)
from distlaunch.google.tail import Tail
from distlaunch.job.vertex import reading
from distlaunch.ui.events import TaskLines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from distlaunch.google.logs import Entry, Logs

_EARLIER = 60.0  # seconds before a job's creation, as clocks differ
_MOST_LISTED = 12


class Lines:
    """Reads what a job's tasks write.

    Parameters
    ----------
    logs
        Where it is.
    job
        What Google says of the job.
    tasks
        Whose lines; all if empty.
    since
        Seconds since 1970; the job's beginning if None.
    one_by_one
        Whether each entry is an event of its own, with its time and severity.
    patience
        Seconds for which a call is tried again.
    calling
        Is entered for each call.
    """

    def __init__(
        self,
        logs: Logs,
        job: Mapping[str, Any],
        *,
        tasks: Sequence[str] = (),
        since: float | None = None,
        one_by_one: bool = False,
        clock: Callable[[], float] = time.monotonic,
        patience: float = PATIENCE,
        calling: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._logs = logs
        self._calling = calling
        self._tasks = tuple(tasks)
        self._one_by_one = one_by_one
        self._patience = patience
        self._query = self._query_of(job)
        start = _creation(job) - _EARLIER if since is None else since
        self.tail = Tail(self._page, start, clock=clock)

    def step(self, job: Mapping[str, Any], *, thorough: bool = False) -> list[TaskLines]:
        """Read one page and return what is new on it.

        Parameters
        ----------
        job
            What Google says of it by now: which trials it has.
        thorough
            Whether late lines have to be looked for.

        Raises
        ------
        GoogleError
            If Google refuses, or cannot be reached; the next step goes on here.
        """
        if not self.tail.is_amid:
            self._query = self._query_of(job)
        entries = self.tail.step(thorough=thorough)
        if self._one_by_one:
            return [TaskLines(e.task, f"{e.text}\n", e.stamp, e.severity) for e in entries]
        return [
            TaskLines(task, "".join(f"{entry.text}\n" for entry in run))
            for task, run in groupby(entries, attrgetter("task"))
        ]

    def whole(self, job: Mapping[str, Any]) -> Iterator[TaskLines]:
        """Go once through all that there is.

        Raises
        ------
        GoogleError
            If Google refuses, or cannot be reached.
        """
        yield from self.step(job, thorough=True)
        while self.tail.is_amid:
            yield from self.step(job, thorough=True)

    def _page(self, since: float, token: str | None) -> tuple[list[Entry], str | None]:
        with self._calling():
            return self._logs.page(self._query, since, token, patience=self._patience)

    def _query_of(self, job: Mapping[str, Any]) -> Query:
        pools = _types(_worker_pools(job))
        return Query(parse_name(job["name"]).id, self._tasks, _trials(job), pools)


def task_names(job: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of a job's tasks, the primary one first and the platform's last.

    A tuning job's are those of its trial with the longest number.
    """
    pools = _worker_pools(job)
    tasks = [
        "chief" if kind == "chief" else f"{kind}:{index}"
        for kind, pool in zip(_types(pools), pools, strict=False)
        for index in range(int((pool or {}).get("replicaCount") or 0))
    ] or ["chief"]
    trials = job.get("maxTrialCount")
    return (*(f"trial:{trials}/{task}" if trials else task for task in tasks), PLATFORM)


def check_tasks(tasks: Sequence[str], job: Mapping[str, Any]) -> None:
    """See that a job has these tasks.

    Raises
    ------
    UsageProblem
        If it has not.
    """
    known = [without_trial(name) for name in task_names(job)]
    for task in tasks:
        check_task(task)
        if without_trial(task) not in known:
            listed = ", ".join(
                known if len(known) <= _MOST_LISTED else [*known[:3], "…", known[-1]]
            )
            raise UsageProblem(f"--task {task}: no such task in this job; there are: {listed}")


def _worker_pools(job: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    spec = job.get("jobSpec") or job.get("trialJobSpec") or {}
    return spec.get("workerPoolSpecs") or []


def _types(pools: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the types of a job's tasks by the number of their worker pool."""
    return POOLS_WITH_REDUCTION_SERVER if reading.reduction_server(pools) else POOLS


def _trials(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the trial's id by its own job's number, as far as Google tells it."""
    return {
        str(trial["customJob"]).rpartition("/")[2]: str(trial.get("id", ""))
        for trial in job.get("trials") or []
        if trial.get("customJob")
    }


def _creation(job: Mapping[str, Any]) -> float:
    try:
        return times.seconds(str(job.get("createTime")))
    except ValueError:
        return 0.0
