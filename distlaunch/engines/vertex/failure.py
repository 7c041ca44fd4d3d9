"""The first failure of a job in the cloud, from its error and its log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from distlaunch import timestamps
from distlaunch.engines.api import JobState
from distlaunch.engines.vertex.job_resource import error_message, is_preempted, platform_message
from distlaunch.engines.vertex.jobs import state
from distlaunch.engines.vertex.log_query import PLATFORM, job_query, read_page, task_of_replica
from distlaunch.errors import GoogleError
from distlaunch.failure_reasons import PREEMPTED, TIMED_OUT, VICTIM, Cause, FailureReport, explain
from distlaunch.job.vertex import fields
from distlaunch.refusals import grant
from distlaunch.tensorflow_noise import text_without_noise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.engines.vertex.jobs import Jobs
    from distlaunch.engines.vertex.log_query import LogEntry

_REPLICAS = re.compile(r"replicas? ((?:workerpool[0-3]-[0-9]+(?:, | and )?)+)")
_REPLICA = re.compile(r"workerpool[0-3]-[0-9]+")
_EXIT_CODE = re.compile(r"non-zero status of (\d+)")
_MAX_PAGES = 3  # of entries of severity ERROR, the newest
_LAST_ENTRIES = 50  # of a task that are searched for a cause
_CLOCK_SKEW = 60.0  # seconds before a job's creation at which its log may start


def find_failure(jobs: Jobs, job: Mapping[str, Any]) -> FailureReport | None:
    """Return the first failure of a job, None for one that has not failed.

    Google cancels a job that has run as long as its timeout; that is a failure too.
    A cause that Vertex AI names decides. Otherwise, the newest lines on stderr and structured
    entries of severity ERROR do: the first task is one that the job's error names, unless it ended
    because another one did; of several, the one whose line with a cause came first.
    """
    if state(job) is JobState.CANCELLED and _has_timed_out(job):
        return FailureReport.of(None, TIMED_OUT, ())
    if state(job) not in (JobState.FAILED, JobState.EXPIRED):
        return None
    message = error_message(job)
    if "startTime" not in job:
        return FailureReport.of(None, explain(message), ())
    try:
        errors = _last_errors(jobs, job)
        no_log = None if errors else _no_log(jobs, job)
    except GoogleError:  # the log cannot be read; the error has the last lines of a task
        errors, no_log = {}, None
    match = _REPLICAS.search(message)
    named = [task_of_replica(job, name) for name in _REPLICA.findall(match[1])] if match else []
    known = PREEMPTED if is_preempted(job) else explain(platform_message(job))
    if known:
        task = named[0] if named else None
        return FailureReport.of(task, known, _lines(errors.get(task or "", [])))
    victims = {task for task in errors if VICTIM.search("\n".join(_lines(errors[task])))}
    tasks = [task for task in (*named, *errors) if task not in victims]
    tasks = [task for task in tasks if task in named] or tasks or named
    found = [(*_last_cause(errors[task]), task) for task in tasks if task in errors]
    explained = [(time, task, cause) for time, cause, task in found if cause]
    if explained:
        _, task, cause = min(explained)
        return FailureReport.of(task, cause, _lines(errors[task]))
    code = _EXIT_CODE.search(message)
    reason = explain(message, exit_code=int(code[1]) if code else None)
    first = tasks[0] if tasks else None
    return FailureReport.of(first, reason or no_log, _lines(errors.get(first or "", [])))


def _has_timed_out(job: Mapping[str, Any]) -> bool:
    """Return whether a cancelled CustomJob ran as long as its timeout, by default 7 days."""
    spec = job.get("jobSpec")
    if spec is None:  # of a tuning job, the timeout is that of each trial
        return False
    timeout = fields.seconds(spec.get("scheduling") or {}, "timeout") or fields.DEFAULT_TIMEOUT
    ran = timestamps.seconds_between(job.get("startTime"), job.get("endTime"))
    return ran is not None and ran >= timeout


def _last_errors(jobs: Jobs, job: Mapping[str, Any]) -> dict[str, list[LogEntry]]:
    """Return the last entries of each task, oldest first; the task that ended first is the first.

    Lines that TensorFlow writes in every job are left out.
    """
    query, token = job_query(job, (), "ERROR"), None
    since = _log_start(job)
    newest: dict[str, list[LogEntry]] = {}
    for _ in range(_MAX_PAGES):
        page, token = read_page(jobs, query, since, token, retry_deadline=0, is_newest_first=True)
        for entry in page:
            text = text_without_noise(entry.text)
            if text.strip() and entry.task != PLATFORM:
                newest.setdefault(entry.task, []).append(entry._replace(text=text))
        if token is None:
            break
    return {task: newest[task][:_LAST_ENTRIES][::-1] for task in reversed(newest)}


def _no_log(jobs: Jobs, job: Mapping[str, Any]) -> Cause | None:
    """Return the likely cause of a job without any line of its tasks, None if there is one."""
    page, _ = read_page(jobs, job_query(job, ()), _log_start(job), retry_deadline=0)
    if any(entry.task != PLATFORM for entry in page):
        return None
    spec = job.get("jobSpec") or job.get("trialJobSpec") or {}
    member = f"serviceAccount:{spec.get('serviceAccount') or 'ACCOUNT_OF_THE_JOB'}"
    return Cause(
        "there is no log: the job's service account may have no permission to write one",
        grant(f"projects add-iam-policy-binding {jobs.project}", member, "roles/logging.logWriter"),
    )


def _log_start(job: Mapping[str, Any]) -> float:
    return timestamps.parse_or(job.get("createTime"), 0.0) - _CLOCK_SKEW


def _last_cause(entries: Sequence[LogEntry]) -> tuple[float, Cause | None]:
    """Return the last known cause in a task's entries, if any, and its time."""
    causes = ((entry.time, explain(entry.text)) for entry in reversed(entries))
    return next((pair for pair in causes if pair[1]), (0.0, None))


def _lines(entries: Sequence[LogEntry]) -> list[str]:
    return [line for entry in entries for line in entry.text.split("\n")]
