"""What Google says of a job, asked again and again → its changes, with how long each state took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlaunch.google import jobs, times
from distlaunch.ui.events import JobChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BEFORE_RUNNING = ("UNSPECIFIED", "QUEUED", "PENDING")


class States:
    """Tells of changes.

    Durations are by Google's own times, so that neither our clock nor the time between two looks is
    in them.

    Parameters
    ----------
    clock
        Seconds, for what Google does not tell.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._state = ""
        self._error = ""
        self._began: object = None  # when the state began, by Google's time
        self._seen = 0.0  # and by ours

    def see(self, job: Mapping[str, Any]) -> list[JobChanged]:
        """Return what has changed since the last look; at the first one, where the job is."""
        state = jobs.state(job)
        error = jobs.error(job) if state in jobs.ENDED else ""
        is_news = error != self._error
        self._error = error
        if state == self._state:
            return [JobChanged(state, None, error)] if is_news and error else []
        found = []
        if self._has_missed_running(state, job):
            found.append(self._change("RUNNING", job.get("startTime")))
        found.append(self._change(state, self._beginning(state, job), error))
        return found

    def _change(self, state: str, began: object, error: str = "") -> JobChanged:
        now = self._clock()
        after: float | None = None
        if self._state:
            after = times.between(self._began, began)
            after = now - self._seen if after is None else after
        self._state, self._began, self._seen = state, began, now
        return JobChanged(state, after, error)

    def _has_missed_running(self, state: str, job: Mapping[str, Any]) -> bool:
        """Whether the job ran between two looks."""
        is_later = state in jobs.ENDED or state == "CANCELLING"
        return self._state in _BEFORE_RUNNING and is_later and "startTime" in job

    def _beginning(self, state: str, job: Mapping[str, Any]) -> object:
        """Return when a state that is new to us began."""
        if state == "RUNNING" and self._state in ("", *_BEFORE_RUNNING):
            return job.get("startTime")
        if state in jobs.ENDED and "endTime" in job:
            return job["endTime"]
        return job.get("updateTime") if self._state else job.get("createTime")
