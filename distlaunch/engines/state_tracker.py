"""Statuses of a job → changes of its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch import timestamps
from distlaunch.engines.api import JobState
from distlaunch.events import JobChanged

if TYPE_CHECKING:
    from distlaunch.engines.api import JobStatus


class StateTracker:
    """Turns successive statuses of a job into changes of its state.

    Durations come from the engine's timestamps, so that they include neither this machine's clock
    nor the interval between polls.
    """

    def __init__(self) -> None:
        self._state: JobState | None = None
        self._error = ""
        self._entered: object = None  # timestamp at which the state was entered

    def update(self, job: JobStatus) -> list[JobChanged]:
        """Return the changes since the last update, and the current state at the first one."""
        state = job.state
        error = job.error if state.is_terminal else ""
        is_new_error = error != self._error
        self._error = error
        if state is self._state:
            return [JobChanged(str(state), None, error)] if is_new_error and error else []
        changes = []
        was_waiting = self._state is None or self._state.is_before_running
        has_left = state.is_terminal or state is JobState.CANCELLING
        if self._state and was_waiting and has_left and job.started:
            changes.append(self._change(JobState.RUNNING, job.started))  # between two updates
        if state is JobState.RUNNING and was_waiting:
            entered = job.started
        elif state.is_terminal and job.ended:
            entered = job.ended
        else:
            entered = job.updated if self._state else job.created
        return [*changes, self._change(state, entered, error)]

    def _change(self, state: JobState, entered: object, error: str = "") -> JobChanged:
        after = timestamps.seconds_between(self._entered, entered) if self._state else None
        self._state, self._entered = state, entered
        return JobChanged(str(state), after, error)
