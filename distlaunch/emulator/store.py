"""The jobs and persistent resources that were created in the emulator."""

from __future__ import annotations

import copy
import hashlib
import random
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from distlaunch import timestamps

if TYPE_CHECKING:
    from collections.abc import Mapping

ENDED = frozenset(f"JOB_STATE_{name}" for name in ("SUCCEEDED", "FAILED", "CANCELLED"))


class UniqueClock:
    """Returns the time in Google's format, and never the same twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0  # microseconds since 1970

    def __call__(self) -> str:
        with self._lock:
            self._last = max(time.time_ns() // 1_000, self._last + 1)
            return timestamps.format(self._last / 1e6)


class Store:
    """Jobs as Google's JSON: camelCase names, enums by name, 64-bit integers as text.

    Every method may be called from any thread, and returns copies. A job's name contains the
    number of its project, as Google's do; the methods accept the project's id in its place.
    """

    def __init__(self) -> None:
        self.now = UniqueClock()
        self._lock = threading.Lock()
        self._jobs: dict[str, dict[str, Any]] = {}

    def create(
        self, parent: str, job: Mapping[str, Any], own_id: str = "", state: str = "JOB_STATE_QUEUED"
    ) -> dict[str, Any]:
        """Add a job with a name, a time and a state, and return it.

        The parent is ``projects/PROJECT/locations/REGION/COLLECTION``. The id is a new number by
        default; KeyError is raised for one that exists.
        """
        with self._lock:
            job_id = own_id or random.randrange(10**18, 9 * 10**18)  # noqa: S311 - not a secret
            name, now = f"{_with_number(parent)}/{job_id}", self.now()
            if name in self._jobs:
                raise KeyError(name)
            times = {"createTime": now, "updateTime": now}
            self._jobs[name] = {"name": name, **job, "state": state, **times}
            return copy.deepcopy(self._jobs[name])

    def get(self, name: str) -> dict[str, Any]:
        """Return a job, or raise KeyError."""
        with self._lock:
            return copy.deepcopy(self._jobs[_with_number(name)])

    def update(self, name: str, **changes: object) -> None:
        """Set fields of a job by their JSON names, and its updateTime; ignore a deleted job."""
        with self._lock:
            job = self._jobs.get(_with_number(name))
            if job is not None:
                job.update(copy.deepcopy(changes), updateTime=self.now())

    def delete(self, name: str) -> None:
        """Remove a job."""
        with self._lock:
            del self._jobs[_with_number(name)]

    def list(self, parent: str) -> list[dict[str, Any]]:
        """Return the jobs of a parent, as in `create`, the newest first."""
        prefix = f"{_with_number(parent)}/"
        with self._lock:
            jobs = [job for name, job in self._jobs.items() if name.startswith(prefix)]
            return copy.deepcopy(jobs[::-1])


@cache
def project_number(project: str) -> str:
    """Return the number of a project, which is always the same for the same id."""
    if project.isdecimal():
        return project
    digest = hashlib.sha256(project.encode()).digest()
    return str(10**11 + int.from_bytes(digest[:8], "big") % (9 * 10**11))


def _with_number(name: str) -> str:
    """Return a resource name (``projects/PROJECT/…``) with the project's number."""
    projects, project, rest = name.split("/", 2)
    return f"{projects}/{project_number(project)}/{rest}"
