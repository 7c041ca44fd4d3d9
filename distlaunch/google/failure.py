"""The first failure of a job in the cloud, from its error and its log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from distlaunch import timestamps
from distlaunch.errors import GoogleError
from distlaunch.google.jobs import JobState, error_message, state
from distlaunch.google.logs import PLATFORM, job_query, read_page, task_of_replica
from distlaunch.ui.failure import VICTIM, FailureReport, explain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.google.jobs import Jobs
    from distlaunch.google.logs import LogEntry

_REPLICA = re.compile(r"replicas? (workerpool[0-3]-[0-9]+)")
_EXIT_CODE = re.compile(r"non-zero status of (\d+)")
_MAX_PAGES = 5  # of entries of severity ERROR
_CLOCK_SKEW = 60.0  # seconds before a job's creation at which its log may start


def find_failure(jobs: Jobs, job: Mapping[str, Any]) -> FailureReport | None:
    """Return the first failure of a job, None for one that has not failed.

    Lines on stderr and structured entries of severity ERROR are read. The first task is the one
    whose first line with a cause came first; tasks that ended because another one did are left out.
    """
    if state(job) not in (JobState.FAILED, JobState.EXPIRED):
        return None
    message = error_message(job)
    if "startTime" not in job:
        return FailureReport.of(None, explain(message), ())
    try:
        by_task = _error_lines(jobs, job)
    except GoogleError:  # the log cannot be read; the error has the last lines of a task
        by_task = {}
    code = _EXIT_CODE.search(message)
    exit_code = int(code[1]) if code else None
    named = _REPLICA.search(message)
    blamed = task_of_replica(job, named[1]) if named else None
    explained = [task for task in by_task if explain(_text(by_task[task]))]
    task = explained[0] if explained else blamed or next(iter(by_task), None)
    lines = by_task.get(task, []) if task else []
    cause = explain(_text(lines)) or explain(message, exit_code=exit_code)
    return FailureReport.of(task, cause, _text(lines).split("\n"))


def _error_lines(jobs: Jobs, job: Mapping[str, Any]) -> dict[str, list[LogEntry]]:
    """Return the entries of each task that is no victim, in the order of their first ones."""
    query, token = job_query(job, (), "ERROR"), None
    since = timestamps.parse_or(job.get("createTime"), 0.0) - _CLOCK_SKEW
    entries: list[LogEntry] = []
    for _ in range(_MAX_PAGES):
        page, token = read_page(jobs, query, since, token, retry_deadline=0)
        entries += page
        if token is None:
            break
    by_task: dict[str, list[LogEntry]] = {}
    for entry in entries:
        if entry.task != PLATFORM:
            by_task.setdefault(entry.task, []).append(entry)
    return {task: lines for task, lines in by_task.items() if not VICTIM.search(_text(lines))}


def _text(entries: Sequence[LogEntry]) -> str:
    return "\n".join(entry.text for entry in entries)
