"""The same error of several tasks, such as of a job that all of them refuse: shown once."""

from __future__ import annotations

import time

from distlaunch.failure_reasons import ERROR_LINE

_SAME = 60.0  # seconds within which tasks that print the same lines have the same error


class ShownErrors:
    """The errors that tasks have printed, and the tasks that have printed one of another task."""

    def __init__(self) -> None:
        self._tasks: dict[str, str] = {}  # those that printed a line first
        self._until = 0.0
        self._same: dict[str, None] = {}

    def new_lines(self, task: str, text: str) -> str:
        """Return the lines of a task without those of an error that another one has printed."""
        lines = text.splitlines(keepends=True)
        errors = [line for line in lines if ERROR_LINE.search(line)]
        if not errors:
            return text
        if time.monotonic() > self._until:
            self._tasks.clear()
        self._until = time.monotonic() + _SAME
        if any(self._tasks.get(line, task) == task for line in errors):
            self._tasks |= {line: task for line in lines if line not in self._tasks}
            return text
        self._same[task] = None
        return "".join(line for line in lines if line not in self._tasks)

    def take_same(self) -> str:
        """Return the tasks in words whose lines were left out since the last call, if any."""
        names, self._same = [*self._same], {}
        return "".join(names) if len(names) <= 1 else f"{len(names)} tasks"
