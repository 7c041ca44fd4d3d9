"""The jobs that were created in the emulator, and their timestamps."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import random
import re
import threading
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_BELOW_MICROSECONDS = re.compile(r"(\.[0-9]{6})[0-9]{1,3}")

Collection = Literal["customJobs", "hyperparameterTuningJobs"]
ENDED = frozenset(
    f"JOB_STATE_{name}"
    for name in ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")
)


class UniqueClock:
    """Returns the time in UTC, and never the same twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = datetime.min.replace(tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        with self._lock:
            self._last = max(datetime.now(timezone.utc), self._last + timedelta(microseconds=1))
            return self._last


def format_time(moment: datetime) -> str:
    """Return a time in UTC, such as ``2026-11-21T17:00:00.123456Z``."""
    return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"


@lru_cache(maxsize=64)
def parse_time(text: str) -> datetime:
    """Read a time in RFC 3339, to the microsecond, or the start of a day in UTC."""
    in_full = _BELOW_MICROSECONDS.sub(r"\1", text.upper())
    if _DAY.fullmatch(text):
        in_full += "T00:00:00Z"
    with contextlib.suppress(ValueError):
        fraction = ".%f" if "." in in_full else ""
        return datetime.strptime(in_full, f"%Y-%m-%dT%H:%M:%S{fraction}%z")
    raise ValueError(f"{text!r} is not a time in RFC 3339, such as 2026-11-21T17:00:00Z")


class UnknownJob(Exception):
    """There is no job of this name."""


class Store:
    """Jobs as Google's JSON: camelCase names, enums by name, 64-bit integers as text.

    Every method may be called from any thread, and returns copies. A job's name contains the
    number of its project, as Google's do; the methods accept the project's id in its place.
    """

    def __init__(self) -> None:
        self._clock = UniqueClock()
        self._lock = threading.Lock()
        self._jobs: dict[str, dict[str, Any]] = {}

    def create(
        self, project: str, location: str, collection: Collection, job: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Add a job with a name, a time and the state JOB_STATE_QUEUED, and return it."""
        with self._lock:
            parent = f"projects/{project_number(project)}/locations/{location}"
            job_id = random.randrange(10**18, 9 * 10**18)  # noqa: S311 - not a secret
            name = f"{parent}/{collection}/{job_id}"
            time = self.now()
            self._jobs[name] = {
                "name": name,
                **copy.deepcopy(dict(job)),
                "state": "JOB_STATE_QUEUED",
                "createTime": time,
                "updateTime": time,
            }
            return copy.deepcopy(self._jobs[name])

    def get(self, name: str) -> dict[str, Any]:
        """Return a job, or raise `UnknownJob`."""
        with self._lock:
            return copy.deepcopy(self._find(name))

    def update(self, name: str, **changes: object) -> None:
        """Set fields of a job by their JSON names, and its updateTime; ignore a deleted job."""
        with self._lock:
            job = self._jobs.get(canonical_name(name))
            if job is not None:
                job.update(copy.deepcopy(changes), updateTime=self.now())

    def delete(self, name: str) -> None:
        """Remove a job, or raise `UnknownJob`."""
        with self._lock:
            del self._jobs[self._find(name)["name"]]

    def list(self, project: str, location: str, collection: Collection) -> list[dict[str, Any]]:
        """Return the jobs of a project and location, the newest first."""
        parent = f"projects/{project_number(project)}/locations/{location}/{collection}/"
        with self._lock:
            jobs = [job for name, job in self._jobs.items() if name.startswith(parent)]
            return copy.deepcopy(jobs[::-1])

    def now(self) -> str:
        """Return the time; no two calls return the same."""
        return format_time(self._clock())

    def _find(self, name: str) -> dict[str, Any]:
        try:
            return self._jobs[canonical_name(name)]
        except KeyError:
            raise UnknownJob(name) from None


def project_number(project: str) -> str:
    """Return the number of a project, which is always the same for the same id."""
    if project.isdecimal():
        return project
    digest = hashlib.sha256(project.encode()).digest()
    return str(10**11 + int.from_bytes(digest[:8], "big") % (9 * 10**11))


def canonical_name(name: str) -> str:
    """Return a resource name (``projects/PROJECT/…``) with the project's number."""
    projects, project, rest = name.split("/", 2)
    return f"{projects}/{project_number(project)}/{rest}"
