"""A run among several: a progress line with its name, and its messages kept for later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.events import Notice, TaskLines, Trained, Waiting
from distlaunch.ui.progress import Progress
from distlaunch.ui.progress_view import ProgressView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.events import Event
    from distlaunch.ui.console import Console


class QuietView(ProgressView):
    """Shows only a progress line of the primary task; lines of tasks are in their logs.

    Attributes
    ----------
    notices : list of Notice
        The messages of the run, in order.
    """

    shows_lines = False

    def __init__(self, console: Console, tasks: Sequence[str], label: str) -> None:
        super().__init__(console, tasks)
        self.notices: list[Notice] = []
        self._chief, self._label = tasks[0], label
        self._steps = Progress()

    def handle(self, event: Event) -> None:
        if isinstance(event, TaskLines):
            return
        if isinstance(event, Notice):
            self.notices.append(event)
        elif isinstance(event, Waiting):
            self._wait_for(event.text and f"{self._label} · {event.text}")
        elif not isinstance(event, Trained):
            super().handle(event)
        elif event.task == self._chief:
            self._wait_for("")
            text = self._steps.update(event.event) or "starting"
            self.console.progress(f"{self._label} · {text}")
