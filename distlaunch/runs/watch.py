"""A job's status until it has ended: in place on a terminal, elsewhere a line for each change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from distlaunch.events import JobFailed, Notice
from distlaunch.runs import display
from distlaunch.runs.view import view_job_whole, view_progress
from distlaunch.ui.progress_view import ProgressView

if TYPE_CHECKING:
    from distlaunch.engines.api import JobStatus
    from distlaunch.events import Event
    from distlaunch.runs.view import RunView
    from distlaunch.submit.lookup import LocatedJob
    from distlaunch.ui.console import Console


class StatusWatch(ProgressView):
    """Shows the status of the job that `follower` follows, each time it is polled."""

    def __init__(self, console: Console, located: LocatedJob, *, as_json: bool) -> None:
        super().__init__(console, located.job.tasks)
        self._located = located
        self._as_json = as_json
        self._is_live = console.has_progress and not as_json
        self._content: object = None

    def handle(self, event: Event) -> None:
        is_message = isinstance(event, Notice) or (
            isinstance(event, JobFailed) and not self._as_json and not self._is_live
        )
        if is_message:  # states and trials are in the status
            super().handle(event)

    def wait(self, seconds: float) -> None:
        """Show the status, and let time pass."""
        if not self._job.has_ended:
            view = view_progress(self._job, self._located.engine)
            if self._is_live:
                self.console.progress("\n".join(map(str, display.whole(view))))
            else:
                self._show_change(view)
        super().wait(seconds)

    def finish(self) -> None:
        """Show the whole status of the job that has ended."""
        self.console.progress("")
        view = view_job_whole(self._job, self._located.engine, self._located.commit)
        if self._is_live:
            self.console.draw(*display.whole(view))
        else:
            self._content = None if self._as_json else self._content
            self._show_change(view)

    @property
    def _job(self) -> JobStatus:
        return self.follower.status if self.follower else self._located.job

    def _show_change(self, view: RunView) -> None:
        """Print the status if more than times and cost has changed."""
        content = (view.state, view.error, view.trials, view.web_access, view.started)
        if content == self._content:
            return
        self._content = content
        if self._as_json:
            facts = view.as_json() | {"metrics": view.facts.metrics}
            self.console.result(json.dumps(facts, ensure_ascii=False))
        else:
            self.console.result(display.progress_line(view))
