"""Ends a task whose training makes no progress, and prints where it is.

A task may wait for ever for a peer whose callback or input blocks: TensorFlow notices peers that
ended, and not those that are alive. So every task watches itself. A task that runs the user's code
ends at once, and is reported first; others wait for it to end.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from contextlib import AbstractContextManager

from . import messages
from .debugging import is_debugged
from .explain import user_location

STEP_TIMEOUT = 600.0
"""Seconds, unless the user sets others: tasks that wait for each other cost the price of all."""

_PEERS_FIRST_SECONDS = 5.0
_FIRST_EPOCH_SECONDS = 600.0


class StepWatchdog(AbstractContextManager):
    """Ends this process with 1 when `progress` was not called for some seconds.

    It watches from the first call of `progress` on, because the first step also traces the model.
    Until the first epoch has ended the limit is 10 minutes or more: validation is traced in it.
    """

    def __init__(self, task: str, seconds: float) -> None:  # 0 seconds for no limit
        self._task = task
        # A task that a debugger holds ends no steps, and others wait for it.
        self._seconds = 0.0 if is_debugged() else seconds
        self._limit = max(seconds, _FIRST_EPOCH_SECONDS)
        self._deadline = float("inf")
        self._has_ended = threading.Event()

    def __enter__(self) -> None:
        """Start watching."""
        if self._seconds:
            threading.Thread(target=self._watch, name="step-watchdog", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self._has_ended.set()

    def progress(self) -> None:
        """Record that steps have ended."""
        self._deadline = time.monotonic() + self._limit

    def end_epoch(self) -> None:
        """Record that an epoch has ended, in which all functions were traced."""
        self._limit = self._seconds
        self.progress()

    def _watch(self) -> None:
        while not self._has_ended.wait(min(1.0, self._seconds / 10)):
            if time.monotonic() > self._deadline:
                self._end()

    def _end(self) -> None:
        frames = sys._current_frames()  # noqa: SLF001 - the documented way to see all threads
        locations = (user_location(frame) for frame in frames.values())
        location = next(filter(None, locations), None)
        if location is None:
            # Another task that runs the user's code is to end first.
            if self._has_ended.wait(_PEERS_FIRST_SECONDS) or time.monotonic() < self._deadline:
                return
            location = "this task waits for another task, for data or for a device"
        else:
            location = f"this task is in {location}"
        faulthandler.dump_traceback(all_threads=True)
        messages.error(
            f"{self._task}: no step has ended for {self._limit:g} s: {location} "
            f"(--step-timeout sets the limit, 0 for none)"
        )
        os._exit(1)
