"""The log of all jobs, and Cloud Logging's ``entries:list``.

https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch.emulator.api_error import ApiError
from distlaunch.emulator.filters import matches, parse_filter, required
from distlaunch.emulator.http import Route, read_json
from distlaunch.emulator.store import UniqueClock, format_time, parse_time, project_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from werkzeug.wrappers import Request

    from distlaunch.emulator.filters import Expression, Value

SEVERITIES = (
    *("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING"),
    *("ERROR", "CRITICAL", "ALERT", "EMERGENCY"),
)

MAX_PAGE_SIZE = 1_000
_DEFAULT_PAGE_SIZE = 50
_ORDERS = {"": False, "timestamp": False, "timestamp asc": False, "timestamp desc": True}
_FIELDS = ("insertId", "jsonPayload", "labels", "logName", "resource")
_JOB_ID = ("resource", "labels", "job_id")


class LogLine(NamedTuple):
    """One line of a job."""

    number: int  # its position in the log, from 1; later entries have a later time
    time: datetime
    job_id: str
    task_name: str  # workerpool0-0, or service for lines of the platform
    severity: str  # one of SEVERITIES
    text: str
    trial: str | None  # the id of the trial that wrote it, None outside of tuning jobs

    @property
    def insert_id(self) -> str:
        """The unique id of the entry; it sorts like `number`."""
        return f"{self.number:014x}"


class LogStore:
    """The log of all jobs; every method may be called from any thread."""

    def __init__(self) -> None:
        self._clock = UniqueClock()
        self._lock = threading.Lock()
        self._projects: dict[str, str] = {}
        self._entries: list[LogLine] = []

    def add_job(self, job_id: str, project: str) -> None:
        """Record the project of a job."""
        self._projects[job_id] = project

    def project(self, job_id: str) -> str:
        """Return the project of a job."""
        return self._projects.get(job_id, "")

    def add(
        self, job_id: str, task_name: str, severity: str, text: str, *, trial: str | None = None
    ) -> None:
        """Append a line, given without its end; see `LogLine`."""
        with self._lock:
            number, time = len(self._entries) + 1, self._clock()
            self._entries.append(LogLine(number, time, job_id, task_name, severity, text, trial))

    def scan(
        self,
        *,
        job_id: str | None = None,
        earliest: datetime | None = None,
        after: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[LogLine]:
        """Go through the entries that there are now."""
        with self._lock:
            first, last = 0, len(self._entries)
            if earliest is not None:
                first = bisect_left(self._entries, earliest, key=lambda entry: entry.time)
            if after is not None and newest_first:
                last = after - 1
            elif after is not None:
                first = max(first, after)
            entries = self._entries[first:last]
        if newest_first:
            entries.reverse()
        return (entry for entry in entries if job_id in (None, entry.job_id))


def as_json(entry: LogLine, project: str) -> dict[str, Any]:
    """Return an entry as ``entries:list`` gives it."""
    labels = {"ml.googleapis.com/job_id/log_area": "root"}
    if entry.trial is not None:
        labels["ml.googleapis.com/trial_id"] = entry.trial
    time = format_time(entry.time)
    return {
        "insertId": entry.insert_id,
        "logName": f"projects/{project}/logs/{entry.task_name}",
        "resource": {
            "type": "ml_job",
            "labels": {
                "project_id": project,
                "job_id": entry.job_id,
                "task_name": entry.task_name,
            },
        },
        "timestamp": time,
        "receiveTimestamp": time,
        "severity": entry.severity,
        "labels": labels,
        "jsonPayload": {"levelname": entry.severity, "message": entry.text},
    }


class LogService:
    """Lists log entries."""

    def __init__(self, logs: LogStore) -> None:
        self._logs = logs

    def routes(self) -> Iterator[Route]:
        """Yield the API's method."""
        yield Route("logs", "POST", "/v2/entries:list", self._list)

    def _list(self, request: Request) -> dict[str, Any]:
        query = read_json(request)
        size = query.get("pageSize") or _DEFAULT_PAGE_SIZE
        if not isinstance(size, int) or size < 0:
            raise ApiError(400, f"Invalid pageSize {size!r}.")
        size = min(size, MAX_PAGE_SIZE)
        order = str(query.get("orderBy", "")).lower()
        if order not in _ORDERS:
            raise ApiError(400, f"Unsupported orderBy {order!r}; use timestamp asc or desc.")
        token = str(query.get("pageToken") or "")
        if token and not token.isdecimal():
            raise ApiError(400, "The page token is invalid.")
        entries = self._matching(
            _projects(query),
            parse_filter(str(query.get("filter", "")), _value),
            after=int(token) if token else None,
            newest_first=_ORDERS[order],
        )
        page = list(islice(entries, size + 1))
        listed = [as_json(entry, self._logs.project(entry.job_id)) for entry in page[:size]]
        rest = {"nextPageToken": str(page[size - 1].number)} if len(page) > size else {}
        return {"entries": listed} | rest

    def _matching(
        self, projects: set[str], expression: Expression, *, after: int | None, newest_first: bool
    ) -> Iterator[LogLine]:
        job_id, earliest = _bounds(expression)
        for entry in self._logs.scan(
            job_id=job_id, earliest=earliest, after=after, newest_first=newest_first
        ):
            project = self._logs.project(entry.job_id)
            if project_number(project) in projects and matches(
                expression,
                lambda field, entry=entry, project=project: _field(entry, project, field),  # type: ignore[misc]
            ):
                yield entry


def _projects(query: dict[str, Any]) -> set[str]:
    """Return the numbers of the requested projects."""
    names = [str(name) for name in query.get("resourceNames", [])]
    projects = [re.fullmatch(r"projects/([^/]+)(/.*)?", name) for name in names]
    if not projects or not all(projects):
        raise ApiError(400, f"resourceNames must have the form projects/PROJECT_ID, got {names}.")
    return {project_number(match[1]) for match in projects if match}


def _bounds(expression: Expression) -> tuple[str | None, datetime | None]:
    """Return the job and the earliest time that an expression requires, if it does."""
    job_id, earliest = None, None
    for comparison in required(expression):
        if comparison.field == _JOB_ID and comparison.sign == "=":
            job_id = str(comparison.value)
        elif isinstance(comparison.value, datetime) and comparison.sign in ("=", ">", ">="):
            earliest = max(earliest or comparison.value, comparison.value)
    return job_id, earliest


def _value(field: tuple[str, ...], text: str) -> Value:
    """Return what a field of an entry is compared with."""
    if field == ("timestamp",):
        return parse_time(text)
    if field == ("severity",):
        if text.upper() not in SEVERITIES:
            raise ValueError(f"unknown severity {text!r}")
        return SEVERITIES.index(text.upper())
    if field[0] not in _FIELDS:
        raise ValueError(f"unknown field {'.'.join(field)!r}")
    return text


def _field(entry: LogLine, project: str, field: tuple[str, ...]) -> Value:
    """Return the value of a field of an entry."""
    if field == ("timestamp",):
        return entry.time
    if field == ("severity",):
        return SEVERITIES.index(entry.severity)
    value: Any = as_json(entry, project)
    for name in field:
        value = value.get(name) if isinstance(value, dict) else None
    return None if value is None else str(value)
