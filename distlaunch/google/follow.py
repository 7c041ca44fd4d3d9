"""A job in the cloud as a stream of events: its states and its lines, until it has ended.

Ctrl-C may come at any moment: while Google is asked nothing has been noted of its answer yet, and
what is done with an answer is done as a whole.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from distlaunch.errors import GoogleError, Unavailable
from distlaunch.google import jobs as google_jobs
from distlaunch.google import times
from distlaunch.google.lines import Lines, task_names
from distlaunch.google.polling import Rhythm, Trouble
from distlaunch.google.states import States
from distlaunch.ui.events import Notice
from distlaunch.ui.interrupts import Interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from distlaunch.google.jobs import Jobs
    from distlaunch.google.logs import Logs
    from distlaunch.ui.events import Event

__all__ = ["Follow", "task_names"]

STATUS_EVERY = 5.0  # seconds, and no oftener
SETTLED = 8.0  # seconds without a new line after the end, before none is expected any more

_LOGS_EVERY = 2.0  # seconds, while lines come: Cloud Logging allows 60 reads a minute
_LOGS_QUIET = 10.0  # seconds at most, while none come
_GROWTH = 1.5
_UNTIL_ERROR = 120.0  # seconds after a bad end: Google says why after about a minute
_LONGEST_END = 300.0  # seconds after the end, whatever is still missing
_UNTIL_GONE = 12.0  # seconds for which an emulator may refuse connections, as while it restarts
_REFUSED_EVERY = 2.0  # seconds between two tries in that time
_UNTIL_SETTLED = 60.0  # seconds after the end of a job of which no line is late any more


class Follow:
    """Follows a job; iterating goes on where an interrupted iteration was left.

    Parameters
    ----------
    jobs, logs
        Where to ask.
    job
        What Google last said of the job; `job` is what it says by now.
    tasks
        Whose lines (``chief``, ``worker:3``, ``vertex`` for the platform's own); all if empty.
    since
        Seconds since 1970: lines from then on; from the job's beginning if None.
    one_by_one
        Whether each entry is an event of its own with its time and severity, as JSON wants it.
    clock, sleep
        Seconds; `sleep` may be `Watch.wait`, which serves a slow reader meanwhile.
    now
        Seconds since 1970.
    """

    def __init__(
        self,
        jobs: Jobs,
        logs: Logs,
        job: Mapping[str, Any],
        *,
        tasks: Sequence[str] = (),
        since: float | None = None,
        one_by_one: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.job = job
        self._jobs = jobs
        self._clock = clock
        self._sleep = sleep
        self._interrupts = Interrupts()
        self._lines = Lines(
            logs,
            job,
            tasks=tasks,
            since=since,
            one_by_one=one_by_one,
            clock=clock,
            patience=0,
            calling=self._interrupts.let_through,
        )
        self._states = States(clock)
        self._waiting: deque[Event] = deque(self._states.see(job))
        trouble = Trouble(clock)
        self._state_rhythm = Rhythm(clock, STATUS_EVERY, trouble)
        self._state_rhythm.answered()
        self._log_rhythm = Rhythm(clock, _LOGS_EVERY, trouble)
        self._has_logs = True
        self._ended: float | None = clock() if google_jobs.has_ended(job) else None
        self._newest_line = clock()
        self._is_old = _ended_long_ago(job, now())
        self._refused_since: float | None = None
        self._is_gone = False

    def __iter__(self) -> Iterator[Event]:
        """Yield what happens until the job has ended and its last lines and its error are here.

        Raises
        ------
        GoogleError
            If the job may not be read or is not there any more, or the emulator is not.
        """
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self._is_over():
                yield from self._what_is_missing()
                return
            if self._state_rhythm.is_due:
                with self._interrupts:
                    self._ask_state()
            elif self._has_logs and self._log_rhythm.is_due:
                with self._interrupts:
                    self._read_logs()
            else:
                self._sleep(self._until_next_call())

    def _until_next_call(self) -> float:
        due = self._state_rhythm.due
        if self._has_logs:
            due = min(due, self._log_rhythm.due)
        return max(due - self._clock(), 0.0)

    def _ask_state(self) -> None:
        try:
            with self._interrupts.let_through():
                job = self._jobs.get(self.job["name"], patience=0)
        except Unavailable as problem:
            self._failed(self._state_rhythm, problem)
            return
        self._refused_since = None
        self._waiting.extend(self._state_rhythm.answered())
        changes = self._states.see(job)
        self.job = job
        self._waiting.extend(changes)
        if self._ended is None and google_jobs.has_ended(job):
            self._ended = self._newest_line = self._clock()
        if changes:
            self._log_rhythm.hurry()

    def _read_logs(self) -> None:
        try:
            lines = self._lines.step(self.job, thorough=self._ended is not None)
        except Unavailable as problem:
            self._failed(self._log_rhythm, problem)
        except GoogleError as problem:
            self._has_logs = False
            self._waiting.append(Notice(f"no logs are shown: {problem}", "warning"))
        else:
            self._refused_since = None
            self._waiting.extend(lines)
            if lines:
                self._newest_line = self._clock()
            self._pace(is_busy=bool(lines))
            self._waiting.extend(self._log_rhythm.answered(again_now=self._lines.tail.is_amid))

    def _failed(self, rhythm: Rhythm, problem: Unavailable) -> None:
        """Note that a call got no answer; an emulator that stays away has ended, and its jobs."""
        self._waiting.extend(rhythm.failed(problem))
        if not self._jobs.session.is_in_vain(problem):
            self._refused_since = None
            return
        now = self._clock()
        rhythm.due = min(rhythm.due, now + _REFUSED_EVERY)
        if self._refused_since is None:
            self._refused_since = now
        if now - self._refused_since < _UNTIL_GONE:
            return
        if self._ended is None:
            raise GoogleError(
                f"{self._jobs.session.endpoint} has refused connections for {_UNTIL_GONE:g} s: "
                "the emulator has stopped, and the job with it"
            ) from problem
        self._is_gone = True

    def _pace(self, *, is_busy: bool) -> None:
        """Read oftener while lines come, and at the end; more seldom while none do."""
        rhythm = self._log_rhythm
        is_eager = is_busy or self._ended is not None
        rhythm.every = _LOGS_EVERY if is_eager else min(rhythm.every * _GROWTH, _LOGS_QUIET)

    def _is_over(self) -> bool:
        """Whether nothing more is to come."""
        if self._ended is None:
            return False
        if self._is_gone:
            return True
        if self._is_old:
            return not self._has_logs or self._lines.tail.whole_look >= self._ended
        since_end = self._clock() - self._ended
        tail = self._lines.tail
        if since_end >= _LONGEST_END and (self._log_rhythm.is_failing or not tail.is_amid):
            return True
        is_quiet = not self._has_logs or tail.quiet_look >= self._newest_line + SETTLED
        return is_quiet and (_is_explained(self.job) or since_end >= _UNTIL_ERROR)

    def _what_is_missing(self) -> Iterator[Event]:
        if self._has_logs and self._lines.tail.whole_look < (self._ended or 0.0):
            yield Notice(
                "the last lines may be missing, as the logs could not be read; "
                "'distlaunch logs' shows them later",
                "warning",
            )
        if not _is_explained(self.job):
            yield Notice("Google does not say why the job ended so", "warning")


def _is_explained(job: Mapping[str, Any]) -> bool:
    """Whether Google has said why a job ended so, or it need not."""
    state = google_jobs.state(job)
    return state in ("SUCCEEDED", "CANCELLED") or bool(google_jobs.error(job))


def _ended_long_ago(job: Mapping[str, Any], now: float) -> bool:
    """Whether nothing more is to come of a job at all."""
    if not google_jobs.has_ended(job):
        return False
    try:
        ago = now - times.seconds(str(job.get("endTime")))
    except ValueError:
        return False
    return ago > (_UNTIL_SETTLED if _is_explained(job) else _LONGEST_END)
