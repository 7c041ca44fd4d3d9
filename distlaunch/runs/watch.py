"""A job's status until it has ended: in place on a terminal, elsewhere a line for each change."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, cast

from distlaunch.events import JobFailed, Notice
from distlaunch.runs import display
from distlaunch.runs.view import view_job_whole, view_status, with_figures
from distlaunch.ui.progress_view import ProgressView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distlaunch.engines.api import Engine, Follower, JobStatus
    from distlaunch.events import Event
    from distlaunch.runs.view import RunView
    from distlaunch.ui.console import Console

_INTERVAL = 15.0  # seconds between two reads of the figures: Cloud Logging allows 60 a minute


class StatusWatch(ProgressView):
    """Shows the status of a job each time that the follower that is streamed has polled it."""

    def __init__(self, console: Console, engine: Engine, job: JobStatus, *, as_json: bool) -> None:
        super().__init__(console, job.tasks)
        self._engine = engine
        self._as_json = as_json
        self._is_live = console.has_progress and not as_json
        self._before: object = None
        self._due = 0.0

    def stream(self, events: Iterable[Event]) -> None:
        """Show a follower's events, and the status."""
        self._follower = cast("Follower", events)
        super().stream(events)

    def handle(self, event: Event) -> None:
        """Show messages; the rest is in the status."""
        if isinstance(event, Notice) or (isinstance(event, JobFailed) and not self._is_live):
            super().handle(event)

    def wait(self, seconds: float) -> None:
        """Show the status if it is due or has changed, and let time pass."""
        job = self._follower.status
        view = view_status(job, self._engine)
        is_due = self._is_live and time.monotonic() >= self._due
        if not job.has_ended and (is_due or _content(view) != self._before):
            self._due = time.monotonic() + _INTERVAL
            self._show(with_figures(view, job, self._engine))
        super().wait(seconds)

    def finish(self, commit: str | None) -> None:
        """Show the whole status of a job that has ended."""
        self._show(view_job_whole(self._follower.status, self._engine, commit), is_last=True)

    def _show(self, view: RunView, *, is_last: bool = False) -> None:
        """Show a status in place, elsewhere as an object or a line."""
        if self._is_live:
            lines = display.whole(view)
            self.console.progress("" if is_last else "\n".join(map(str, lines)))
            self.console.draw(*lines if is_last else ())
        elif self._as_json:
            self.console.result(json.dumps(view.as_json() | {"metrics": view.facts.metrics}))
        else:
            self.console.draw(display.status_line(view))
        self._before = _content(view)


def _content(view: RunView) -> tuple[object, ...]:
    """Return what a status is shown for again; times, cost and figures change all the time."""
    return view.state, view.error, view.trials, view.web_access
