"""The log of all jobs, and Cloud Logging's ``entries:list``.

https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list
"""

from __future__ import annotations

import contextlib
import heapq
import json
import re
import tempfile
import threading
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.filters import SEVERITIES, Predicate, parse_filter
from distlaunch.emulator.http import ApiError, Route, read_json
from distlaunch.emulator.store import UniqueClock, project_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from werkzeug.wrappers import Request

_MAX_PAGE_SIZE = 1_000
# Cloud Logging's.
_DEFAULT_PAGE_SIZE = 50
_ORDERS = {"": 1, "timestamp": 1, "timestamp asc": 1, "timestamp desc": -1}
_FIELDS = (
    *("insertId", "jsonPayload", "labels", "logName", "resource"),
    *("severity", "timestamp"),
)


class LogStore:
    """The log of all jobs, in a file; every method may be called from any thread."""

    def __init__(self) -> None:
        self._clock = UniqueClock()
        self._lock = threading.Lock()
        self._projects: dict[str, str] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="distlaunch-logs-")
        self._path = Path(self._folder.name, "lines")
        self._file = self._path.open("wb")
        self._end = 0  # of the file
        self._offsets: dict[str, array[int]] = {}  # in the file, of the lines of each job

    def close(self) -> None:
        """Remove the log."""
        self._file.close()
        self._folder.cleanup()

    def add_job(self, job_id: str, project: str) -> None:
        """Record the project of a job."""
        self._projects[job_id] = project

    def add(
        self, job_id: str, task_name: str, severity: str, text: str, *, trial: str | None = None
    ) -> None:
        """Append a line, given without its end.

        Parameters
        ----------
        task_name
            ``workerpool0-0``, or ``service`` for lines of the platform.
        trial
            The id of the trial that wrote it, None outside of tuning jobs.
        """
        with self._lock:
            line = json.dumps([self._clock(), task_name, severity, text, trial])
            self._offsets.setdefault(job_id, array("Q")).append(self._end)
            self._end += self._file.write(f"{line}\n".encode())

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries that there are now, the oldest first, in Google's JSON."""
        return [*self._read(Predicate(), [*self._offsets])]

    def routes(self) -> Iterator[Route]:
        """Yield the API's method."""
        yield Route("POST", "/v2/entries:list", self._list)

    def _list(self, request: Request) -> dict[str, Any]:
        query = read_json(request)
        projects = _projects(query)
        is_listed = parse_filter(str(query.get("filter", "")), _FIELDS)
        order = str(query.get("orderBy", "")).lower()
        if order not in _ORDERS:
            raise ApiError(400, f"Unsupported orderBy {order!r}; use timestamp asc or desc.")
        size = query.get("pageSize") or _DEFAULT_PAGE_SIZE
        if not isinstance(size, int) or size < 0:
            raise ApiError(400, f"Invalid pageSize {size!r}.")
        named = is_listed.values.get("resource.labels.job_id", self._offsets.keys())
        jobs = [
            job
            for job in self._offsets.copy()
            if job in named and project_number(self._projects.get(job, "")) in projects
        ]
        token = str(query.get("pageToken") or "")
        entries = self._read(is_listed, jobs, token, is_reverse=_ORDERS[order] < 0)
        page = [*islice(entries, min(size, _MAX_PAGE_SIZE))]
        has_more = next(entries, None) is not None
        return {"entries": page, **({"nextPageToken": page[-1]["insertId"]} if has_more else {})}

    def _read(
        self,
        is_listed: Predicate,
        jobs: Sequence[str],
        token: str = "",
        *,
        is_reverse: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Yield entries of jobs in their order, behind the one of a token."""
        try:
            last = int(token, 16) - 1 if token else None
        except ValueError:
            raise ApiError(400, "The page token is invalid.") from None
        with self._lock:
            self._file.flush()
            ends = {job: len(self._offsets[job]) for job in jobs if job in self._offsets}
        with self._path.open("rb") as file:

            def time_at(offset: int) -> str:
                file.seek(offset)
                return str(json.loads(file.readline())[0])

            def lines_of(job: str, end: int) -> Iterator[tuple[int, str]]:
                offsets, start = self._offsets[job], 0
                if is_listed.since:
                    start = bisect_left(offsets, is_listed.since, hi=end, key=time_at)
                if last is not None and is_reverse:
                    end = bisect_left(offsets, last, hi=end)
                elif last is not None:
                    start = max(start, bisect_right(offsets, last, hi=end))
                numbers = range(start, end)
                return ((offsets[number], job) for number in numbers[:: -1 if is_reverse else 1])

            lines = starmap(lines_of, ends.items())
            for offset, job in heapq.merge(*lines, reverse=is_reverse):
                file.seek(offset)
                entry = self._entry(job, offset, file.readline())
                if is_listed(entry):
                    yield entry

    def _entry(self, job_id: str, offset: int, line: bytes) -> dict[str, Any]:
        time, task_name, severity, text, trial = json.loads(line)
        project = self._projects.get(job_id, "")
        resource = {"project_id": project, "job_id": job_id, "task_name": task_name}
        labels = {} if trial is None else {"ml.googleapis.com/trial_id": trial}
        return {
            "insertId": f"{offset + 1:014x}",
            "logName": f"projects/{project}/logs/{task_name}",
            "resource": {"type": "ml_job", "labels": resource},
            "timestamp": time,
            "receiveTimestamp": time,
            "labels": {"ml.googleapis.com/job_id/log_area": "root", **labels},
            **_payload(severity, text),
        }


def _payload(severity: str, text: str) -> dict[str, Any]:
    """Return severity and payload of a line; one JSON object is the payload itself."""
    payload = {}
    if text.startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            payload = json.loads(text)
    if "message" not in payload:
        return {"severity": severity, "jsonPayload": {"levelname": severity, "message": text}}
    named = payload.pop("severity", severity)
    return {"severity": named if named in SEVERITIES else severity, "jsonPayload": payload}


def _projects(query: dict[str, Any]) -> set[str]:
    """Return the numbers of the requested projects."""
    names = [str(name) for name in query.get("resourceNames", [])]
    projects = [re.fullmatch(r"projects/([^/]+)(/.*)?", name) for name in names]
    if not projects or not all(projects):
        raise ApiError(400, f"resourceNames must have the form projects/PROJECT_ID, got {names}.")
    return {project_number(match[1]) for match in projects if match}
