"""What a task prints: raw into its log, and as lines to the console."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from distlaunch.errors import os_reason
from distlaunch.events import Notice, TaskLines
from distlaunch.task_files import Lines
from distlaunch.tensorflow_noise import without_noise

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from distlaunch.events import Event

# Tasks can print on while the launcher is busy: Linux gives 64 KiB.
_PIPE_SIZE = 1 << 18  # bytes
_LAST_LINES = 20
_LAST_BYTES = 1 << 14


def open_pipe() -> tuple[int, int]:
    """Return the reading and the writing end of a pipe for a task's output."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):  # the system limits what a user's pipes hold in all
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    return reading, writing


class TaskOutput:
    """Reads one task's output from a non-blocking pipe; the log file gets every byte."""

    def __init__(
        self, task: str, descriptor: int, log: Path, report: Callable[[Event], None]
    ) -> None:
        self.log = log
        self.is_open = True
        self._task = task
        self._descriptor = descriptor
        self._log = log.open("wb", buffering=0)
        self._report = report
        self._lines = Lines()
        self._last = b""

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> bool:
        """Read a part of what there is; return whether there was any."""
        try:
            data = os.read(self._descriptor, _PIPE_SIZE)
        except BlockingIOError:
            return False
        self.is_open = bool(data)
        self._record(data)
        self._show(self._lines.feed(data))
        return self.is_open

    def finish(self) -> None:
        """Read the rest after all processes that could write have ended."""
        while self.read():
            pass
        self._show(self._lines.close())
        os.close(self._descriptor)

    def add_to_log(self, text: str) -> None:
        """Write into the log what the task did not print."""
        self._record(text.encode("utf-8", "replace"))

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def last_lines(self) -> str:
        """Return the last lines that were shown."""
        return "".join(_text(self._last).splitlines(keepends=True)[-_LAST_LINES:])

    def _record(self, data: bytes) -> None:
        """Write to the log; a full disk is no reason to end a training."""
        if self._log.closed:
            return
        try:
            while data:
                data = data[self._log.write(data) :]
        except OSError as problem:
            self._log.close()
            self._report(Notice(f"{self.log} ends here: {os_reason(problem)}", "warning"))

    def _show(self, lines: bytes) -> None:
        lines = without_noise(lines)
        if lines:
            self._last = (self._last + lines[-_LAST_BYTES:])[-_LAST_BYTES:]
            self._report(TaskLines(self._task, _text(lines)))


def _text(lines: bytes) -> str:
    return lines.decode("utf-8", "replace")
