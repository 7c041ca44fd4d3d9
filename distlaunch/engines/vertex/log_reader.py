"""Read the log of a job, in one go or while it grows: each entry once, including late ones.

Entries can arrive late and twice, so recent entries are read again and known by their insertId.
A full scan reads the last minutes again; where it takes many pages, short scans run in between.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from distlaunch import timestamps
from distlaunch.engines.vertex.log_query import job_query, read_page
from distlaunch.errors import GoogleError, RetryableError
from distlaunch.events import TaskLines, Trained
from distlaunch.figures import FIGURES
from distlaunch.retry import RETRY_DEADLINE
from distlaunch.tensorflow_noise import text_without_noise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from distlaunch.engines.api import LogSelection
    from distlaunch.engines.vertex.jobs import Jobs
    from distlaunch.engines.vertex.log_query import LogEntry

    Page = tuple[list[LogEntry], str | None]  # and the token of the next one

WINDOW = 300.0  # seconds of the log that a full scan reads again for late entries

_SHORT_WINDOW = 10.0  # seconds of the log that a short scan reads again
_MOST_KNOWN = 10_000  # entries before the old ones are forgotten
_PAUSE_PER_PAGE = 4.0  # seconds between full scans, for each page that one takes
_MAX_PAUSE = 120.0  # seconds between full scans
_CLOCK_SKEW = 60.0  # seconds before a job's creation at which its log may start


class LogReader:
    """Reads the log of a job, in one go or while it grows."""

    def __init__(
        self,
        jobs: Jobs,
        job: Mapping[str, Any],
        selection: LogSelection,
        *,
        window: float = WINDOW,
        clock: Callable[[], float] = time.monotonic,
        retry_deadline: float = RETRY_DEADLINE,
    ) -> None:
        self._jobs = jobs
        self._selection = selection
        self._retry_deadline = retry_deadline
        start = timestamps.parse_or(job.get("createTime"), 0.0) - _CLOCK_SKEW
        since = start if selection.since is None else selection.since
        self.tail = Tail(self._read_page, since, window, clock=clock)
        self._query = job_query(job, selection.tasks, selection.severity)
        self._last = selection.last  # entries to begin with, None once they are read

    def step(self, job: Mapping[str, Any], *, full: bool = False) -> list[TaskLines | Trained]:
        """Read one page, or first the last entries, and return their new lines and figures."""
        if not self.tail.in_progress:
            selection = self._selection
            self._query = job_query(job, selection.tasks, selection.severity)
        if self._last is not None:
            entries = self._read_last(self._last)
            self._last = None
            return self._to_events(entries)
        return self._to_events(_select(self._selection, self.tail.step(full=full)))

    def read_all(self, job: Mapping[str, Any]) -> Iterator[TaskLines | Trained]:
        """Yield all lines and figures that exist now."""
        yield from self.step(job, full=True)
        while self.tail.in_progress:
            yield from self.step(job, full=True)

    def _read_last(self, count: int) -> list[LogEntry]:
        """Return the last entries that are selected, from the end of the log, oldest first."""
        entries: list[LogEntry] = []
        token: str | None = None
        while True:
            page, token = self._read_page(self.tail.since, token, is_newest_first=True)
            fresh = self.tail.skip(page, has_more=token is not None)
            entries += (each for each in _select(self._selection, fresh) if not each.figures)
            if token is None or len(entries) >= count:
                return entries[:count][::-1]

    def _read_page(self, since: float, token: str | None, *, is_newest_first: bool = False) -> Page:
        return read_page(
            self._jobs,
            self._query,
            since,
            token,
            retry_deadline=self._retry_deadline,
            is_newest_first=is_newest_first,
        )

    def _to_events(self, entries: Sequence[LogEntry]) -> list[TaskLines | Trained]:
        events: list[TaskLines | Trained] = []
        for (task, severity, has_figures), group in groupby(
            entries, lambda entry: (entry.task, entry.severity, bool(entry.figures))
        ):
            if has_figures:
                events += [Trained(task, {"event": FIGURES, **entry.figures}) for entry in group]
            elif self._selection.is_per_entry:
                lines = ((f"{entry.text}\n", entry.timestamp, entry.severity) for entry in group)
                events += [TaskLines(task, *line) for line in lines]
            else:
                text = "".join(f"{entry.text}\n" for entry in group)
                events.append(TaskLines(task, text, severity=severity))
        return events


def _select(selection: LogSelection, entries: Sequence[LogEntry]) -> list[LogEntry]:
    """Return entries with the selected lines, without entries that have none."""
    if selection.pattern is None and not selection.hide_noise:
        return list(entries)
    if selection.pattern:  # of lines
        entries = [entry for entry in entries if not entry.figures]
    selected = [(entry, _select_lines(selection, entry.text)) for entry in entries]
    return [entry._replace(text="\n".join(lines)) for entry, lines in selected if lines]


def _select_lines(selection: LogSelection, text: str) -> list[str]:
    if selection.hide_noise and text:
        text = text_without_noise(text)
        if not text:
            return []
    pattern = selection.pattern
    return [line for line in text.split("\n") if pattern is None or pattern.search(line)]


@dataclass(slots=True)
class _Scan:
    """Reading from a time on, page by page, over several calls."""

    start: float
    is_full: bool
    began: float
    reached: float
    pages: int = 0
    fresh: int = 0
    token: str | None = None


class Tail:
    """Reads a log from a time on, each entry once.

    Entries may appear as late as `window` seconds after newer ones.
    """

    def __init__(
        self,
        read_page: Callable[[float, str | None], Page],
        since: float,
        window: float = WINDOW,
        *,
        clock: Callable[[], float],
    ) -> None:
        self.last_full_scan = float("-inf")
        self.last_empty_scan = float("-inf")
        self._read_page = read_page
        self.since = since
        self._window = window
        self._clock = clock
        self._newest = since
        self._known: dict[int, float] = {}  # the times of entries that may be read again
        self._most_known = _MOST_KNOWN
        self._scan: _Scan | None = None
        self._next_full_scan = clock()

    @property
    def in_progress(self) -> bool:
        """Whether a scan has more pages to read at once."""
        return self._scan is not None

    def step(self, *, full: bool = False) -> list[LogEntry]:
        """Read one page and return its new entries."""
        scan = self._scan = self._scan or self._new_scan(full=full)
        try:
            page, token = self._read_page(scan.start, scan.token)
        except RetryableError:
            raise
        except GoogleError:
            if scan.token is None or scan.reached <= scan.start:
                raise
            scan.start, scan.token = scan.reached, None  # the token may have expired
            return []
        fresh = self._take_new(page)
        scan.reached = max([scan.reached, *(entry.time for entry in page[-1:])])
        scan.pages += 1
        scan.fresh += len(fresh)
        scan.token = token
        if token is None:
            self._finish(scan)
        return fresh

    def skip(self, page: list[LogEntry], *, has_more: bool) -> list[LogEntry]:
        """Return the new entries of a page, the newest first; those before it are never read."""
        if page and has_more:
            self.since = page[-1].time
        return self._take_new(page)

    def _new_scan(self, *, full: bool) -> _Scan:
        now = self._clock()
        is_full = full or now >= self._next_full_scan
        window = self._window if is_full else min(self._window, _SHORT_WINDOW)
        start = max(self._newest - window, self.since)
        return _Scan(start, is_full, now, start)

    def _finish(self, scan: _Scan) -> None:
        self._scan = None
        if not scan.is_full:
            return
        self.last_full_scan = scan.began
        if not scan.fresh:
            self.last_empty_scan = scan.began
        pause = min(_PAUSE_PER_PAGE * (scan.pages - 1), _MAX_PAUSE)
        self._next_full_scan = self._clock() + pause

    def _take_new(self, page: list[LogEntry]) -> list[LogEntry]:
        """Remember a page's new entries and return them."""
        fresh = []
        for entry in page:
            key = hash((entry.insert_id, entry.task))
            if key not in self._known:
                fresh.append(entry)
                self._known[key] = entry.time
                self._newest = max(self._newest, entry.moment)
        if len(self._known) > self._most_known:
            earliest = self._newest - self._window - 1.0  # as the start of a scan is rounded
            self._known = {key: time for key, time in self._known.items() if time >= earliest}
            self._most_known = max(2 * len(self._known), _MOST_KNOWN)
        return fresh
