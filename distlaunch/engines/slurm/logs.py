"""The output and events of the tasks of a job on Slurm, from the files in its folder."""

from __future__ import annotations

import heapq
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distlaunch.engines.api import LogSelection
from distlaunch.engines.slurm.job_status import PLATFORM
from distlaunch.events import Notice, TaskLines, Trained
from distlaunch.figures import FIGURES
from distlaunch.job.tasks import Task
from distlaunch.summary import as_number
from distlaunch.task_files import EventFile, Lines
from distlaunch.tensorflow_noise import without_noise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from distlaunch.engines.slurm.launch_folder import LaunchFolder
    from distlaunch.events import Event

_BLOCK = 1 << 18  # bytes read at once
_LAST_EVENTS = 1 << 18  # bytes that have the figures of the last minutes


class TaskLogReader:
    """Reads what the tasks of a job have written since the last look, attempt after attempt."""

    def __init__(
        self, folder: LaunchFolder, tasks: Sequence[str], selection: LogSelection | None
    ) -> None:
        self._folder = folder
        self._selection = selection
        self._tasks = [task for task in tasks if task != PLATFORM]
        self._attempt = 0
        self._events: dict[str, EventFile] = {}
        self._logs = {PLATFORM: LogFile(folder.slurm_log)}
        self._is_first = True

    def read(self) -> Iterator[Event]:
        """Yield the new lines and events; those of an attempt that has ended come first."""
        while True:
            yield from self._read_attempt()
            if not self._folder.attempt(self._attempt + 1).path.is_dir():
                break
            self._attempt += 1
            self._open(self._attempt)
            if self._attempt > 1 and self._selection is not None:
                yield Notice(f"Slurm started the job again (restart {self._attempt - 1})")
        self._is_first = False

    def _open(self, number: int) -> None:
        attempt = self._folder.attempt(number)
        tasks = {name: Task.parse(name) for name in self._tasks}
        self._events = {name: EventFile(attempt.events(task)) for name, task in tasks.items()}
        slurm = self._logs[PLATFORM]
        self._logs = {name: LogFile(attempt.log(task)) for name, task in tasks.items()}
        self._logs[PLATFORM] = slurm

    def _read_attempt(self) -> Iterator[Event]:
        if self._selection is not None:
            for task, log in self._logs.items():
                if not self._selection.tasks or task in self._selection.tasks:
                    blocks = self._select(self._selection, log.read())
                    yield from (TaskLines(task, text) for text in blocks if text)
        # Those of an attempt that runs for hours are not held in memory.
        new = (self._read_events(task, events) for task, events in self._events.items())
        yield from heapq.merge(*new, key=lambda event: as_number(event.event.get("time")) or 0.0)

    def _read_events(self, task: str, events: EventFile) -> Iterator[Trained]:
        selection = self._selection or LogSelection()
        is_limited = selection.pattern or (
            self._is_first and selection.last is not None
        )  # to lines
        hidden = {"error"}  # which the task has printed
        if is_limited or task not in (selection.tasks or (task,)):
            hidden.add(FIGURES)
        yield from (Trained(task, event) for event in events.poll() if event["event"] not in hidden)

    def _select(self, selection: LogSelection, blocks: Iterator[bytes]) -> Iterator[str]:
        """Yield the selected lines of blocks of whole lines, at first the last ones only."""
        last = selection.last if self._is_first else None
        kept = deque[str](maxlen=last)
        for block in blocks:
            text = without_noise(block) if selection.hide_noise else block
            lines = text.decode("utf-8", "replace").splitlines(keepends=True)
            kept += (each for each in lines if not (p := selection.pattern) or p.search(each))
            if last is None:
                yield "".join(kept)
                kept.clear()
        yield "".join(kept)


def read_figures(folder: LaunchFolder, tasks: Sequence[str]) -> dict[str, Any]:
    """Return the newest figures of each task in the last attempt."""
    attempt = folder.attempt(folder.attempts())
    figures: dict[str, Any] = {}
    for task in tasks:
        if task != PLATFORM:
            for event in EventFile(attempt.events(Task.parse(task)), last=_LAST_EVENTS).poll():
                if event.pop("event") == FIGURES:
                    figures[task] = event
    return figures


class LogFile:
    """Reads whole lines that were appended to a file since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_to = 0
        self._lines = Lines()

    def read(self) -> Iterator[bytes]:
        """Yield the new lines in blocks, each line ended by a newline."""
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(self._read_to)
            while data := file.read(_BLOCK):
                self._read_to += len(data)
                yield self._lines.feed(data)
