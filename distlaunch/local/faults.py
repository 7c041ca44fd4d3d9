"""Faults injected on purpose: a task killed or frozen at a step or at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from distlaunch.errors import UsageError
from distlaunch.job.model import Task

if TYPE_CHECKING:
    from collections.abc import Iterable

Action = Literal["kill", "freeze"]

_WHEN = re.compile(r"step=(?P<step>[0-9]{1,18})|(?P<seconds>[0-9]{1,9}(\.[0-9]{1,9})?)s", re.ASCII)


@dataclass(frozen=True, slots=True)
class Fault:
    """A task to kill or to freeze; either `step` or `seconds` is set."""

    action: Action  # kill (SIGKILL) or freeze (SIGSTOP), for the task and all that it started
    task: Task
    step: int | None = None  # the global step, or the first event after it
    seconds: float | None = None  # after the start of the tasks

    @classmethod
    def parse(cls, action: Action, text: str) -> Fault:
        """Read ``worker:0@step=40`` or ``worker:0@5s``, or raise UsageError."""
        name, _, when = text.rpartition("@")
        match = _WHEN.fullmatch(when)
        if not name or match is None:
            raise UsageError(
                f"--{action}: {text!r} is not TASK@step=N or TASK@SECONDSs, "
                "as worker:0@step=40 or chief@5s"
            )
        try:
            task = Task.parse(name)
        except UsageError as problem:
            raise UsageError(f"--{action}: {problem}") from None
        step, seconds = match["step"], match["seconds"]
        return cls(action, task, int(step) if step else None, float(seconds) if seconds else None)

    @property
    def when(self) -> str:
        """The moment, as ``step 40`` or ``5 s``."""
        return f"step {self.step}" if self.seconds is None else f"{self.seconds:g} s"

    def __str__(self) -> str:
        at = f"step={self.step}" if self.seconds is None else f"{self.seconds:g}s"
        return f"--{self.action} {self.task}@{at}"


def check_faults(faults: Iterable[Fault], tasks: Iterable[Task]) -> None:
    """Raise UsageError if a fault is for a task that is not in the cluster."""
    known = tuple(tasks)
    for fault in faults:
        if fault.task not in known:
            choices = ", ".join(map(str, known))
            raise UsageError(f"{fault}: no such task in this cluster; there are: {choices}")
