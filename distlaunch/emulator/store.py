"""The jobs that the emulator was given."""

from __future__ import annotations

import copy
import hashlib
import random
import re
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from distlaunch.emulator.times import stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Collection = Literal["customJobs", "hyperparameterTuningJobs"]
ENDED = frozenset(
    f"JOB_STATE_{name}"
    for name in ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")
)

_NAME = re.compile(r"projects/([^/]+)/(.+)")


class UnknownJob(Exception):
    """There is no job of this name."""


class Store:
    """Jobs as Google's JSON: camelCase names, enums by name, 64-bit integers as text.

    Every method may be called from any thread, and hands out copies. A job's name holds the
    number of its project, as Google's do; a name with the project's id finds it too.

    Parameters
    ----------
    clock
        Nanoseconds since 1970.
    """

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: dict[str, dict[str, Any]] = {}
        self._newest = 0

    def create(
        self, project: str, location: str, collection: Collection, job: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Take in a job, give it a name and a time, and return it in JOB_STATE_QUEUED."""
        with self._lock:
            parent = f"projects/{project_number(project)}/locations/{location}"
            name = f"{parent}/{collection}/{self._new_id(parent, collection)}"
            now = self._now()
            made = {
                "name": name,
                **copy.deepcopy(dict(job)),
                "state": "JOB_STATE_QUEUED",
                "createTime": now,
                "updateTime": now,
            }
            self._jobs[name] = made
            return copy.deepcopy(made)

    def get(self, name: str) -> dict[str, Any]:
        """Return a job.

        Raises
        ------
        UnknownJob
            If there is none of this name.
        """
        with self._lock:
            found = self._jobs.get(_canonical(name))
            if found is None:
                raise UnknownJob(name)
            return copy.deepcopy(found)

    def state(self, name: str) -> str:
        """Return the state of a job, without a copy of it all.

        Raises
        ------
        UnknownJob
            If there is none of this name.
        """
        with self._lock:
            found = self._jobs.get(_canonical(name))
            if found is None:
                raise UnknownJob(name)
            return str(found["state"])

    def update(self, name: str, **changes: object) -> None:
        """Change fields of a job, and its updateTime; a job that was deleted stays deleted.

        Parameters
        ----------
        changes
            Values by Google's JSON names, as ``state="JOB_STATE_RUNNING"``; None: no such field.
        """
        with self._lock:
            job = self._jobs.get(_canonical(name))
            if job is None:
                return
            for field, value in {**changes, "updateTime": self._now()}.items():
                if value is None:
                    job.pop(field, None)
                else:
                    job[field] = copy.deepcopy(value)

    def delete(self, name: str) -> None:
        """Forget a job.

        Raises
        ------
        UnknownJob
            If there is none of this name.
        """
        with self._lock:
            if self._jobs.pop(_canonical(name), None) is None:
                raise UnknownJob(name)

    def list(self, project: str, location: str, collection: Collection) -> list[dict[str, Any]]:
        """Return the jobs of a project and location, the newest first."""
        parent = f"projects/{project_number(project)}/locations/{location}/{collection}/"
        with self._lock:
            found = [job for name, job in self._jobs.items() if name.startswith(parent)]
            return copy.deepcopy(found[::-1])

    def now(self) -> str:
        """Return the time as the store tells it; no two calls get the same."""
        with self._lock:
            return self._now()

    def _now(self) -> str:
        self._newest = max(self._clock(), self._newest + 1_000)
        return stamp(self._newest)

    def _new_id(self, parent: str, collection: str) -> str:
        while True:
            number = str(random.randrange(10**18, 9 * 10**18))  # noqa: S311 - no secret
            if f"{parent}/{collection}/{number}" not in self._jobs:
                return number


@cache
def project_number(project: str) -> str:
    """Return the number that a project has here, always the same for the same id."""
    if project.isdecimal():
        return project
    digest = hashlib.sha256(project.encode()).digest()
    return str(10**11 + int.from_bytes(digest[:8], "big") % (9 * 10**11))


def _canonical(name: str) -> str:
    found = _NAME.fullmatch(name)
    return f"projects/{project_number(found[1])}/{found[2]}" if found else name
