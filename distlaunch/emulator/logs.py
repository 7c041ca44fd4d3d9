"""What jobs wrote, as Cloud Logging keeps it."""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch.emulator.times import UniqueClock, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

SEVERITIES = (
    *("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING"),
    *("ERROR", "CRITICAL", "ALERT", "EMERGENCY"),
)


class LogLine(NamedTuple):
    """One line of a job.

    Parameters
    ----------
    number
        Its position in the log, from 1; later entries have a later time.
    task_name
        ``workerpool0-0``, or ``service`` for lines of the platform.
    severity
        One of `SEVERITIES`.
    trial
        The id of the trial that wrote it, None outside of tuning jobs.
    """

    number: int
    time: datetime
    job_id: str
    task_name: str
    severity: str
    text: str
    trial: str | None

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
