"""The log of a job's tasks and of the platform, from Cloud Logging."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch import timestamps
from distlaunch.engines.vertex.jobs import parse_name
from distlaunch.errors import UsageError
from distlaunch.figures import FIGURES
from distlaunch.job import reduction_server
from distlaunch.job.tasks import TASK_TYPES
from distlaunch.job.vertex import fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.engines.vertex.jobs import Jobs

PLATFORM = "vertex"  # the task name of the platform's own lines
PAGE = 1_000  # entries, the maximum of Cloud Logging
POOLS: tuple[str, ...] = TASK_TYPES
"""The types of tasks by the number of their worker pool."""
POOLS_WITH_REDUCTION_SERVER = ("chief", "worker", reduction_server.TASK, "evaluator")

_TRIAL_LABEL = "ml.googleapis.com/trial_id"
_PLATFORM_TASK = "service"  # Google's task name of the platform's own lines
_TASK = re.compile(r"workerpool([0-3])-([0-9]{1,9})", re.ASCII)
_TRIAL = re.compile(r"^trial:[0-9]+/", re.ASCII)
_MAX_TRIALS = 300  # as Cloud Logging accepts filters of 20,000 characters at most
_MAX_LISTED = 12  # tasks in a message


class LogEntry(NamedTuple):
    """A log entry."""

    time: float  # when it was written, in seconds since 1970
    moment: float  # the same, or when Cloud Logging received it if a task's clock is ahead
    timestamp: str  # when it was written, as Google formats it
    insert_id: str  # duplicates have the same
    task: str  # such as worker:0, trial:2/worker:0 in a tuning job, or PLATFORM
    severity: str  # Google's, such as ERROR
    text: str  # its lines, without the newline of the last one
    figures: Mapping[str, Any]  # of an entry that has them in place of lines, with its time


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Selects entries of a job."""

    job_ids: tuple[str, ...]  # the numbers of the job and of its trials' jobs
    tasks: tuple[str, ...] = ()  # all if empty; a task without a trial is included of every trial
    trials: Mapping[str, str] = field(default_factory=dict)  # their ids by their jobs' numbers
    pools: tuple[str, ...] = POOLS
    severity: str = ""  # the lowest
    only_figures: bool = False

    def filter(self, since: float) -> str:
        """Return the query in Cloud Logging's language."""
        names = sorted({_google_task_name(task, self.pools) for task in self.tasks})
        terms = [
            'resource.type="ml_job"',
            _any_of("resource.labels.job_id", self.job_ids),
            _any_of("resource.labels.task_name", names),
            f"severity>={self.severity}" if self.severity else "",
            f"jsonPayload.{FIGURES}:*" if self.only_figures else "",
            f'timestamp>="{timestamps.format(since)}"',
        ]
        return " AND ".join(filter(None, terms))

    def includes(self, task: str) -> bool:
        """Whether a task is one of those to include."""
        return not self.tasks or task in self.tasks or without_trial(task) in self.tasks


def job_query(job: Mapping[str, Any], tasks: Sequence[str], severity: str = "") -> LogQuery:
    """Return the query for a job's log, and for those of its last trials."""
    trials = {
        str(trial["customJob"]).rpartition("/")[2]: str(trial.get("id", ""))
        for trial in job.get("trials") or []
        if trial.get("customJob")
    }
    job_ids = (parse_name(job["name"]).id, *[*trials][-_MAX_TRIALS:])
    return LogQuery(job_ids, tuple(tasks), trials, _pool_types(_worker_pools(job)), severity)


def read_page(
    jobs: Jobs,
    query: LogQuery,
    since: float,
    token: str | None = None,
    *,
    retry_deadline: float,
    is_newest_first: bool = False,
) -> tuple[list[LogEntry], str | None]:
    """Return a page of entries from a time on, oldest first, and the next token if any.

    With `is_newest_first` the first page has the last entries, the newest first.
    """
    body: dict[str, Any] = {
        "resourceNames": [f"projects/{jobs.project}"],
        "filter": query.filter(since),
        "orderBy": "timestamp desc" if is_newest_first else "timestamp asc",
        "pageSize": PAGE,
    }
    if token:
        body["pageToken"] = token
    response = jobs.session.call(
        "POST", "logging", "entries:list", body=body, retry_deadline=retry_deadline
    )
    entries = [_parse_entry(item, query) for item in response.get("entries") or []]
    included = [entry for entry in entries if query.includes(entry.task)]
    return included, response.get("nextPageToken")


def read_figures(jobs: Jobs, job: Mapping[str, Any], since: float) -> dict[str, Any]:
    """Return the newest figures of each task from a time on."""
    query = replace(job_query(job, ()), only_figures=True)
    page, _ = read_page(jobs, query, since, retry_deadline=0, is_newest_first=True)
    return {entry.task: entry.figures for entry in reversed(page) if entry.figures}


def task_names(job: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of a job's tasks, the primary one first and the platform's last.

    Those of a tuning job are of its trial with the longest number.
    """
    pools = _worker_pools(job)
    tasks = [
        "chief" if kind == "chief" else f"{kind}:{index}"
        for kind, pool in zip(_pool_types(pools), pools, strict=False)
        for index in range(int((pool or {}).get("replicaCount") or 0))
    ] or ["chief"]
    trials = job.get("maxTrialCount")
    return (*(f"trial:{trials}/{task}" if trials else task for task in tasks), PLATFORM)


def task_of_replica(job: Mapping[str, Any], replica: str) -> str:
    """Return the task name of a replica, such as worker:0 for ``workerpool1-0``."""
    return _task_name(replica, _pool_types(_worker_pools(job)))


def check_tasks(tasks: Sequence[str], of_job: Sequence[str]) -> None:
    """Raise UsageError if a job does not have these tasks; `of_job` are those that it has."""
    known = [without_trial(name) for name in of_job]
    for name in tasks:
        if without_trial(name) not in known:
            listed = known if len(known) <= _MAX_LISTED else [*known[:3], "…", known[-1]]
            raise UsageError(
                f"--task {name}: no such task in this job; there are: {', '.join(listed)}"
            )


def message_of(line: str) -> str:
    """Return the message of a line of a structured log, and other lines as they are."""
    if line.lstrip().startswith("{"):
        with suppress(KeyError, ValueError, RecursionError):
            return str(json.loads(line)["message"])
    return line


def without_trial(name: str) -> str:
    """Return a task's name without its trial."""
    return _TRIAL.sub("", name, count=1)


def _any_of(field: str, values: Sequence[str]) -> str:
    terms = [f'{field}="{value}"' for value in values]
    return terms[0] if len(terms) == 1 else f"({' OR '.join(terms)})" if terms else ""


def _parse_entry(item: Mapping[str, Any], query: LogQuery) -> LogEntry:
    resource = _object(_object(item, "resource"), "labels")
    timestamp = str(item.get("timestamp") or item.get("receiveTimestamp") or "")
    job_id = str(resource.get("job_id"))
    trial = _object(item, "labels").get(_TRIAL_LABEL) or query.trials.get(job_id)
    task = _task_name(str(resource.get("task_name") or ""), query.pools)
    time = timestamps.parse_or(timestamp, 0.0)
    return LogEntry(
        time=time,
        moment=min(time, timestamps.parse_or(item.get("receiveTimestamp"), time)),
        timestamp=timestamp,
        insert_id=str(item.get("insertId") or json.dumps(item, sort_keys=True)),
        task=f"trial:{trial}/{task}" if trial else task,
        severity=str(item.get("severity") or "DEFAULT"),
        text=_text(item),
        figures=_figures(_object(item, "jsonPayload"), time),
    )


def _figures(payload: Mapping[str, Any], time: float) -> Mapping[str, Any]:
    """Return the trainer's figures; an entry of another program may have a field of that name."""
    figures = _object(payload, FIGURES) if payload.get("message") == FIGURES else {}
    return {"time": time, **figures} if figures else {}


def _text(entry: Mapping[str, Any]) -> str:
    """Return an entry's lines; a carriage return ends a line, as in local runs."""
    payload = entry.get("jsonPayload")
    if isinstance(payload, dict):
        message = payload.get("message")
        text = message if isinstance(message, str) else json.dumps(payload, ensure_ascii=False)
    elif "textPayload" in entry:
        text = str(entry["textPayload"])
    else:
        payload = entry.get("protoPayload")
        text = json.dumps(payload, ensure_ascii=False) if payload else ""
    text = text.replace("\r\n", "\n").rstrip("\r\n").replace("\r", "\n")
    # The platform quotes lines of structured logs.
    return "\n".join(map(message_of, text.split("\n")))


def _task_name(google_name: str, pools: Sequence[str]) -> str:
    """Return the task name for Google's: ``worker:3`` for ``workerpool1-3``."""
    match = _TASK.fullmatch(google_name)
    if match is None:
        return PLATFORM if google_name in (_PLATFORM_TASK, "") else google_name
    kind, index = pools[int(match[1])], int(match[2])
    return kind if kind == "chief" and not index else f"{kind}:{index}"


def _google_task_name(task: str, pools: Sequence[str]) -> str:
    task = without_trial(task)
    if task == PLATFORM:
        return _PLATFORM_TASK
    kind, _, index = task.partition(":")
    return f"workerpool{pools.index(kind)}-{index or 0}"


def _worker_pools(job: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    spec = fields.job_spec(job)
    return spec.get("workerPoolSpecs") or []


def _pool_types(pools: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the types of a job's tasks by the number of their worker pool."""
    return POOLS_WITH_REDUCTION_SERVER if fields.reduction_server(pools) else POOLS


def _object(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    item = value.get(name)
    return item if isinstance(item, dict) else {}
