"""Follow a job in the cloud as a stream of events: its states and log lines, until it has ended."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch import timestamps
from distlaunch.engines.api import JobState, LogSelection
from distlaunch.engines.state_tracker import StateTracker
from distlaunch.engines.vertex.client import display_endpoint
from distlaunch.engines.vertex.job_resource import read_status
from distlaunch.engines.vertex.log_reader import WINDOW, LogReader
from distlaunch.errors import EmulatorStopped, GoogleError, RetryableError
from distlaunch.events import Notice, TrialsChanged
from distlaunch.retry import Backoff
from distlaunch.text import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlaunch.engines.api import JobStatus
    from distlaunch.engines.vertex.jobs import Jobs
    from distlaunch.events import Event

_LOG_INTERVAL_GROWTH = 1.5
_ERROR_TIMEOUT = 120.0  # seconds after a failure: Google gives its reason after about a minute
_END_TIMEOUT = 300.0  # seconds after the end, whatever is still missing
_OLD_JOB = 60.0  # seconds after the end of a job of which no late lines are expected
_MAX_RETRY_DELAY = 80.0  # seconds between attempts of a failing call
_MAX_RETRY_AFTER = 600.0  # seconds of a server's Retry-After that are respected
_OUTAGE_REPORT = 20.0  # seconds of failing calls before they are reported


@dataclass(frozen=True, slots=True)
class PollIntervals:
    """Seconds between calls."""

    state: float = 5.0
    log: float = 2.0  # while lines arrive; Cloud Logging allows 60 reads a minute
    idle_log: float = 10.0  # while none arrive
    quiet: float = 8.0  # without a new line after the job's end, until none is expected
    window: float = WINDOW  # of the log in which entries may appear late


GOOGLE = PollIntervals()
EMULATOR = PollIntervals(state=0.5, log=0.5, idle_log=1.0, quiet=0.0, window=1.0)
"""An emulator's log is complete when its job has ended, and in the order of its times."""


class JobFollower:
    """Follows a job; iterating again after an interrupt resumes.

    The attribute `status` is the latest. `sleep` may be `ProgressView.wait`, which serves a slow
    reader in the meantime. Without a `selection` there are only states and trials. A job that has
    not started `max_wait` seconds after its creation is no longer followed, and `is_stalled` is
    set.
    """

    def __init__(
        self,
        jobs: Jobs,
        job: JobStatus,
        selection: LogSelection | None,
        *,
        max_wait: float | None = None,
        intervals: PollIntervals = GOOGLE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.status = job
        self._jobs = jobs
        self._intervals = intervals
        self._clock = clock
        self._sleep = sleep
        # Not retried by the client: an outage is reported here, once for states and log.
        self._reader = LogReader(
            jobs,
            job.resource,
            selection or LogSelection(),
            window=intervals.window,
            clock=clock,
            retry_deadline=0,
        )
        self._states = StateTracker()
        self._pending: deque[Event] = deque(self._states.update(job))
        if job.trials:
            self._pending.append(TrialsChanged(job.trials))
        self._outage_since: float | None = None
        self._is_outage_reported = False
        self._state_polls = PollSchedule(clock, intervals.state)
        self._state_polls.succeeded()
        self._log_polls = PollSchedule(clock, intervals.log)
        self._has_logs = selection is not None
        self._ended: float | None = clock() if job.has_ended else None
        self._newest_line = clock()
        self._is_old = _ended_long_ago(job, now())
        self._is_emulator_gone = False
        age = now() - timestamps.parse_or(job.created, now())
        self._wait_end = None if max_wait is None else clock() + max_wait - age
        self.is_stalled = False

    def __iter__(self) -> Iterator[Event]:
        """Yield events until the job has ended and its last lines and error have arrived.

        GoogleError is raised if the job cannot be read, or the emulator has stopped.
        """
        while True:
            while self._pending:
                yield self._pending.popleft()
            if self._is_complete():
                yield from self._missing_parts()
                return
            now = self._clock()
            if self._wait_end is not None and now >= self._wait_end:
                self.is_stalled = self.status.state.is_before_running
                self._wait_end = None
                if self.is_stalled:
                    return
            if now >= self._state_polls.due:
                self._poll_state()
            elif self._has_logs and now >= self._log_polls.due:
                self._read_logs()
            else:
                polls = [self._state_polls, *([self._log_polls] if self._has_logs else [])]
                self._sleep(max(min(poll.due for poll in polls) - self._clock(), 0.0))

    def _poll_state(self) -> None:
        try:
            resource = self._jobs.get(self.status.name, retry_deadline=0)
        except RetryableError as error:
            self._failed(self._state_polls, error)
            return
        self._succeeded(self._state_polls)
        job = self.status = read_status(resource, self._jobs.project)
        changes = self._states.update(job)
        self._pending.extend(changes)
        if job.trials:
            self._pending.append(TrialsChanged(job.trials))
        if self._ended is None and job.has_ended:
            self._ended = self._newest_line = self._clock()
        if changes and not self._log_polls.is_failing:
            self._log_polls.due = self._clock()

    def _read_logs(self) -> None:
        try:
            lines = self._reader.step(self.status.resource, full=self._ended is not None)
        except RetryableError as error:
            self._failed(self._log_polls, error)
        except GoogleError as error:
            self._has_logs = False
            self._pending.append(Notice(f"no logs are shown: {error}", "warning"))
        else:
            self._pending.extend(lines)
            if lines:
                self._newest_line = self._clock()
            self._adapt_log_interval(has_lines=bool(lines))
            self._succeeded(self._log_polls)
            if self._reader.tail.in_progress:
                self._log_polls.due = self._clock()

    def _succeeded(self, polls: PollSchedule) -> None:
        polls.succeeded()
        if self._outage_since is None or self._state_polls.is_failing or self._log_polls.is_failing:
            return
        if self._is_outage_reported:
            lasted = duration(self._clock() - self._outage_since)
            self._pending.append(Notice(f"Google answers again, after {lasted}"))
        self._outage_since, self._is_outage_reported = None, False

    def _failed(self, polls: PollSchedule, error: RetryableError) -> None:
        """Schedule another attempt and report a lasting outage once; an emulator has stopped."""
        polls.failed(error)
        session = self._jobs.session
        if session.is_emulator_down(error):
            self._is_emulator_gone = True
            if self._ended is None:
                raise EmulatorStopped(
                    f"{display_endpoint(session.endpoint)} refuses connections: the emulator has "
                    "stopped, and the job with it"
                ) from error
        now = self._clock()
        self._outage_since = now if self._outage_since is None else self._outage_since
        if not self._is_outage_reported and now - self._outage_since >= _OUTAGE_REPORT:
            self._is_outage_reported = True
            notice = Notice(f"{error}; retrying, the job keeps running", "warning")
            self._pending.append(notice)

    def _adapt_log_interval(self, *, has_lines: bool) -> None:
        """Read more often while lines arrive, and at the end."""
        polls, intervals = self._log_polls, self._intervals
        longer = min(polls.interval * _LOG_INTERVAL_GROWTH, intervals.idle_log)
        polls.interval = intervals.log if has_lines or self._ended is not None else longer

    def _is_complete(self) -> bool:
        """Whether no further event is expected."""
        if self._ended is None:
            return False
        if self._is_emulator_gone:
            return True
        in_progress = self._reader.tail.in_progress
        since_end = self._clock() - self._ended
        if since_end >= _END_TIMEOUT and (self._log_polls.is_failing or not in_progress):
            return True
        if self._has_logs and not self._has_all_lines(self._ended):
            return False
        return self._is_old or _is_explained(self.status) or since_end >= _ERROR_TIMEOUT

    def _has_all_lines(self, end: float) -> bool:
        if self._is_old or not self._intervals.quiet:
            return self._reader.tail.last_full_scan >= end
        return self._reader.tail.last_empty_scan >= self._newest_line + self._intervals.quiet

    def _missing_parts(self) -> Iterator[Event]:
        if self._has_logs and self._reader.tail.last_full_scan < (self._ended or 0.0):
            yield Notice(
                "the last lines may be missing, as the logs could not be read; "
                "'distlaunch logs' shows them later",
                "warning",
            )
        if not _is_explained(self.status):
            yield Notice("no error message from Vertex AI", "warning")


class PollSchedule:
    """When a repeated call is due."""

    def __init__(self, clock: Callable[[], float], interval: float) -> None:
        self.interval = interval
        self.due = clock()
        self.is_failing = False
        self._clock = clock
        self._backoff = Backoff(2 * interval, _MAX_RETRY_DELAY, clock=clock)

    def succeeded(self) -> None:
        """Schedule the next call after a success."""
        self.is_failing = False
        self._backoff.reset()
        self.due = self._clock() + self.interval

    def failed(self, error: RetryableError) -> None:
        """Schedule the next call after a failure."""
        self.is_failing = True
        delay = self._backoff.next_delay(min(error.wait, _MAX_RETRY_AFTER)) or 0.0
        self.due = self._clock() + delay


def _is_explained(job: JobStatus) -> bool:
    """Whether Google has given the reason for a job's end, or none is expected."""
    return job.state in (JobState.SUCCEEDED, JobState.CANCELLED) or bool(job.error)


def _ended_long_ago(job: JobStatus, now: float) -> bool:
    """Whether a job has ended so long ago that nothing more is expected of it."""
    age = now - timestamps.parse_or(job.ended, now)
    limit = _OLD_JOB if _is_explained(job) else _END_TIMEOUT
    return job.has_ended and age > limit
