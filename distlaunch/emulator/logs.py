"""The log of all jobs, and Cloud Logging's ``entries:list``.

https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.filters import SEVERITIES, parse_filter, select_page
from distlaunch.emulator.http import ApiError, Route, read_json
from distlaunch.emulator.store import UniqueClock, project_number

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """The log of all jobs; every method may be called from any thread."""

    def __init__(self) -> None:
        self._clock = UniqueClock()
        self._lock = threading.Lock()
        self._projects: dict[str, str] = {}
        self._entries: list[dict[str, Any]] = []

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
        project = self._projects.get(job_id, "")
        resource = {"project_id": project, "job_id": job_id, "task_name": task_name}
        labels = {} if trial is None else {"ml.googleapis.com/trial_id": trial}
        with self._lock:
            time = self._clock()
            self._entries.append(
                {
                    "insertId": f"{len(self._entries) + 1:014x}",
                    "logName": f"projects/{project}/logs/{task_name}",
                    "resource": {"type": "ml_job", "labels": resource},
                    "timestamp": time,
                    "receiveTimestamp": time,
                    "labels": {"ml.googleapis.com/job_id/log_area": "root", **labels},
                    **_payload(severity, text),
                }
            )

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries that there are now, the oldest first, in Google's JSON."""
        with self._lock:
            return self._entries.copy()

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
        entries = [
            entry
            for entry in self.entries()[:: _ORDERS[order]]
            if project_number(entry["resource"]["labels"]["project_id"]) in projects
            and is_listed(entry)
        ]
        page, rest = select_page(
            entries,
            "insertId",
            size=query.get("pageSize") or _DEFAULT_PAGE_SIZE,
            token=str(query.get("pageToken") or ""),
            largest=_MAX_PAGE_SIZE,
        )
        return {"entries": page, **rest}


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
