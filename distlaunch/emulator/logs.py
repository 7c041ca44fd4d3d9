"""What jobs wrote, as Cloud Logging keeps it."""

from __future__ import annotations

import heapq
import random
import threading
import time
from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch.emulator.times import NANOSECONDS, stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEVERITIES = (
    "DEFAULT",
    "DEBUG",
    "INFO",
    "NOTICE",
    "WARNING",
    "ERROR",
    "CRITICAL",
    "ALERT",
    "EMERGENCY",
)
_Key = tuple[int, int, int]
_CHUNK = 1_000
_COPY_DELAY = 1.0  # seconds at most by which a duplicate comes later, where nothing else is said
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Entry(NamedTuple):
    """One entry; entries sort as Cloud Logging orders them.

    Parameters
    ----------
    time, number
        Nanoseconds since 1970, and what the entry's insertId is made of; the later, the higher.
    copy
        1 where the entry is here for the second time.
    received
        When it got to the log.
    """

    time: int
    number: int
    copy: int
    received: int
    job_id: str
    task_name: str
    severity: str
    text: str
    trial: str | None

    @property
    def key(self) -> _Key:
        """What entries are ordered by."""
        return self.time, self.number, self.copy

    @property
    def insert_id(self) -> str:
        """What tells an entry from others; it grows with `number`."""
        return _base_36(self.number)


class Logs:
    """Lines by job; every method may be called from any thread.

    Parameters
    ----------
    late
        Seconds: half of the lines can be read only up to so much later, at their own time.
    duplicates
        The share of lines that are there twice with one insertId, the second at times later.
    seed
        What late and doubled lines are drawn with.
    clock
        Nanoseconds since 1970.
    """

    def __init__(
        self,
        *,
        late: float = 0.0,
        duplicates: float = 0.0,
        seed: int = 0,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._late = late
        self._duplicates = duplicates
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._projects: dict[str, str] = {}
        self._entries: dict[str, list[Entry]] = {}
        self._underway: list[tuple[int, Entry]] = []

    def begin(self, job_id: str, project: str) -> None:
        """Tell which project a job belongs to."""
        with self._lock:
            self._projects[job_id] = project

    def project(self, job_id: str) -> str:
        """Return the project of a job."""
        return self._projects.get(job_id, "")

    def add(
        self,
        job_id: str,
        task_name: str,
        severity: str,
        text: str,
        *,
        trial: str | None = None,
    ) -> None:
        """Write a line.

        Parameters
        ----------
        job_id
            The number at the end of the job's name.
        task_name
            As ``workerpool0-0``, or ``service`` for what the platform itself says.
        severity
            One of Google's, as ``INFO``.
        text
            The line without its end.
        trial
            The trial's id, where it is a trial that writes.
        """
        with self._lock:
            now = self._clock()
            self._count += 1
            entry = Entry(now, self._count, 0, now, job_id, task_name, severity, text, trial)
            self._deliver(entry, self._delay(self._late))
            if self._duplicates and self._random.random() < self._duplicates:
                self._deliver(entry._replace(copy=1), self._delay(self._late or _COPY_DELAY))

    def scan(
        self,
        *,
        job_id: str | None = None,
        earliest: int = 0,
        after: _Key | None = None,
        newest_first: bool = False,
    ) -> Iterator[Entry]:
        """Go through entries as they are now, in order of time and insertId.

        Parameters
        ----------
        job_id
            Those of one job only.
        earliest
            Those of this time (nanoseconds) and later only.
        after
            Those only that come after the entry of this key, in the order asked for.
        """
        with self._lock:
            self._take_in()
            jobs = [job_id] if job_id is not None else list(self._entries)
        walks = [self._walk(job, earliest, after, newest_first) for job in jobs]
        return heapq.merge(*walks, reverse=newest_first)

    def _walk(
        self, job_id: str, earliest: int, after: _Key | None, newest_first: bool
    ) -> Iterator[Entry]:
        """Go on from the last entry's key, as late entries move the others' places."""
        while chunk := self._chunk(job_id, earliest, after, newest_first):
            yield from chunk
            after = chunk[-1].key

    def _chunk(
        self, job_id: str, earliest: int, after: _Key | None, newest_first: bool
    ) -> list[Entry]:
        with self._lock:
            entries = self._entries.get(job_id, [])
            first, last = _place(entries, (earliest, 0, 0)), len(entries)
            if newest_first:
                last = _place(entries, after) if after else last
                return entries[max(first, last - _CHUNK) : last][::-1]
            if after:
                time, number, copy = after
                first = max(first, _place(entries, (time, number, copy + 1)))
            return entries[first : first + _CHUNK]

    def _delay(self, most: float) -> int:
        """Return nanoseconds, none for half of the lines."""
        if not most or self._random.random() < 0.5:
            return 0
        return int(self._random.uniform(0, most) * NANOSECONDS)

    def _deliver(self, entry: Entry, delay: int) -> None:
        due = entry.time + delay
        entry = entry._replace(received=due)
        if delay:
            heapq.heappush(self._underway, (due, entry))
        else:
            insort(self._entries.setdefault(entry.job_id, []), entry)

    def _take_in(self) -> None:
        now = self._clock()
        while self._underway and self._underway[0][0] <= now:
            _, entry = heapq.heappop(self._underway)
            insort(self._entries.setdefault(entry.job_id, []), entry)


def as_json(entry: Entry, project: str) -> dict[str, Any]:
    """Return an entry as ``entries:list`` gives it."""
    labels = {"ml.googleapis.com/job_id/log_area": "root"}
    if entry.trial is not None:
        labels["ml.googleapis.com/trial_id"] = entry.trial
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
        "timestamp": stamp(entry.time, digits=9),
        "receiveTimestamp": stamp(entry.received, digits=9),
        "severity": entry.severity,
        "labels": labels,
        "jsonPayload": {"levelname": entry.severity, "message": entry.text},
    }


def _place(entries: list[Entry], key: _Key) -> int:
    """Return where an entry of this key is or would be."""
    return bisect_left(entries, key)


def _base_36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = _DIGITS[rest] + digits
    return digits.rjust(14, "0")
