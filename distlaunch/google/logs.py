"""What a job's tasks and the platform wrote, from Cloud Logging."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch.google import times
from distlaunch.google.answers import LOG_PAGE, mismatch
from distlaunch.google.client import PATIENCE
from distlaunch.job import reduction_server
from distlaunch.job.model import Task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.google.client import Session

PLATFORM = "vertex"  # the name that the platform's own lines stand behind
PAGE = 1_000  # entries; Cloud Logging gives no more at once

_TRIAL_LABEL = "ml.googleapis.com/trial_id"
_SERVICE = "service"  # Google's name for who writes the platform's own lines
_TASK = re.compile(r"workerpool([0-3])-([0-9]{1,9})", re.ASCII)
POOLS = ("chief", "worker", "ps", "evaluator")
"""The types of tasks by the number of their worker pool."""
POOLS_WITH_REDUCTION_SERVER = ("chief", "worker", reduction_server.TASK, "evaluator")

_REDUCTION_SERVER = re.compile(rf"{reduction_server.TASK}:(0|[1-9][0-9]*)", re.ASCII)
_TRIAL = re.compile(r"^trial:[0-9]+/", re.ASCII)


class Entry(NamedTuple):
    """A log entry.

    Parameters
    ----------
    time, received
        When it was written and when it got to the log, seconds since 1970.
    stamp
        When it was written, as Google says it.
    insert_id
        What tells it from others; an entry that is there twice has it twice.
    task
        Who wrote it: ``worker:0``, ``trial:2/worker:0`` in a tuning job, or ``vertex``.
    severity
        Google's word for it, as ``ERROR``.
    text
        Its lines, the last one without an end.
    """

    time: float
    received: float
    stamp: str
    insert_id: str
    task: str
    severity: str
    text: str

    @property
    def moment(self) -> float:
        """When it was written; not after it got to the log, as the clock of a task can be ahead."""
        return min(self.time, self.received)


@dataclass(frozen=True, slots=True)
class Query:
    """Which entries of a job's.

    Parameters
    ----------
    job_id
        The number at the end of its name.
    tasks
        Whose; all if empty. A task without a trial is meant of every trial.
    trials
        The trial's id by the number of the trial's own job, of a tuning job.
    pools
        The types of tasks by the number of their worker pool.
    """

    job_id: str
    tasks: tuple[str, ...] = ()
    trials: Mapping[str, str] = field(default_factory=dict)
    pools: tuple[str, ...] = POOLS

    def filter(self, since: float) -> str:
        """Return it in Cloud Logging's language."""
        names = sorted({_google_name(task, self.pools) for task in self.tasks})
        terms = [
            'resource.type="ml_job"',
            _any_of("resource.labels.job_id", [self.job_id, *self.trials]),
            _any_of("resource.labels.task_name", names),
            f'timestamp>="{times.stamp(since)}"',
        ]
        return " AND ".join(filter(None, terms))

    def wants(self, task: str) -> bool:
        """Whether a task is one of those asked for."""
        return not self.tasks or task in self.tasks or without_trial(task) in self.tasks


class Logs:
    """The logs of one project.

    Parameters
    ----------
    session
        What carries the calls.
    project
        Whose logs.
    """

    def __init__(self, session: Session, project: str) -> None:
        self._session = session
        self._project = project

    def page(
        self,
        query: Query,
        since: float,
        token: str | None = None,
        *,
        patience: float = PATIENCE,
    ) -> tuple[list[Entry], str | None]:
        """Return a page of entries from a time on, oldest first, and the next one's token if any.

        Parameters
        ----------
        query
            Which entries.
        since
            Seconds since 1970.
        token
            What the page before came with.
        patience
            Seconds for which the call is tried again.

        Raises
        ------
        GoogleError
            If Google refuses, cannot be reached, or the answer is not valid.
        """
        body: dict[str, Any] = {
            "resourceNames": [f"projects/{self._project}"],
            "filter": query.filter(since),
            "orderBy": "timestamp asc",
            "pageSize": PAGE,
        }
        if token:
            body["pageToken"] = token
        answer = self._session.call("POST", "logging", "entries:list", body=body, patience=patience)
        problem = mismatch(answer, LOG_PAGE)
        if problem:
            raise self._session.invalid("logging", problem)
        found = [_entry(each, query) for each in answer.get("entries") or []]
        return [each for each in found if query.wants(each.task)], answer.get("nextPageToken")


def check_task(name: str) -> None:
    """See that this can be a task's name.

    Raises
    ------
    UsageProblem
        If it cannot.
    """
    task = without_trial(name)
    if task != PLATFORM and not _REDUCTION_SERVER.fullmatch(task):
        Task.parse(task)


def _any_of(field: str, values: Sequence[str]) -> str:
    terms = [f'{field}="{value}"' for value in values]
    return terms[0] if len(terms) == 1 else f"({' OR '.join(terms)})" if terms else ""


def _entry(found: Mapping[str, Any], query: Query) -> Entry:
    resource = _bag(_bag(found, "resource"), "labels")
    stamp = str(found.get("timestamp") or found.get("receiveTimestamp") or "")
    job_id = str(resource.get("job_id"))
    trial = _bag(found, "labels").get(_TRIAL_LABEL) or query.trials.get(job_id)
    task = _our_name(str(resource.get("task_name") or ""), query.pools)
    time = _seconds(stamp, 0.0)
    return Entry(
        time=time,
        received=_seconds(str(found.get("receiveTimestamp") or ""), time),
        stamp=stamp,
        insert_id=str(found.get("insertId") or json.dumps(found, sort_keys=True)),
        task=f"trial:{trial}/{task}" if trial else task,
        severity=str(found.get("severity") or "DEFAULT"),
        text=_text(found),
    )


def _text(entry: Mapping[str, Any]) -> str:
    """Return an entry's lines; a carriage return ends one, too, as it does on this machine."""
    payload = entry.get("jsonPayload")
    if isinstance(payload, dict):
        said = payload.get("message")
        text = said if isinstance(said, str) else json.dumps(payload, ensure_ascii=False)
    elif "textPayload" in entry:
        text = str(entry["textPayload"])
    else:
        payload = entry.get("protoPayload")
        text = json.dumps(payload, ensure_ascii=False) if payload else ""
    return text.replace("\r\n", "\n").rstrip("\r\n").replace("\r", "\n")


def _our_name(name: str, pools: Sequence[str]) -> str:
    """Return our name of a task: ``workerpool1-3`` is ``worker:3``."""
    found = _TASK.fullmatch(name)
    if found is None:
        return PLATFORM if name in (_SERVICE, "") else name
    kind, index = pools[int(found[1])], int(found[2])
    return kind if kind == "chief" and not index else f"{kind}:{index}"


def _google_name(task: str, pools: Sequence[str]) -> str:
    task = without_trial(task)
    if task == PLATFORM:
        return _SERVICE
    kind, _, index = task.partition(":")
    return f"workerpool{pools.index(kind)}-{index or 0}"


def without_trial(name: str) -> str:
    """Return a task's name without the trial that it is of, if it names one."""
    return _TRIAL.sub("", name, count=1)


def _bag(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _seconds(text: str, otherwise: float) -> float:
    try:
        return times.seconds(text)
    except ValueError:
        return otherwise
