"""Warns of workers that are gone, and ends the chief if all are: TensorFlow would wait for ever."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager

from distlaunch_trainer.task import messages
from distlaunch_trainer.task.addresses import listens

_POLL_SECONDS = 1.0
_ALL_GONE_SECONDS = 10.0  # for which a platform may take to restart one


class LostWorkers(AbstractContextManager):
    """Looks for the workers, addresses by name, while the chief trains."""

    def __init__(self, workers: Mapping[str, str]) -> None:
        self._workers = workers
        self._lost: set[str] = set()
        self._has_ended = threading.Event()

    def __enter__(self) -> None:
        """Start watching."""
        threading.Thread(target=self._watch, name="lost-workers", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self._has_ended.set()

    def _watch(self) -> None:
        last_seen = time.monotonic()
        while not self._has_ended.wait(_POLL_SECONDS):
            for name, address in self._workers.items():
                self._look(name, address)
            if len(self._lost) < len(self._workers):
                last_seen = time.monotonic()
            elif time.monotonic() > last_seen + _ALL_GONE_SECONDS:
                self._end()

    def _look(self, name: str, address: str) -> None:
        is_here = listens(address)
        if is_here and name in self._lost:
            self._lost.remove(name)
            messages.notice(f"trainer: {name} is back and trains again")
        elif not is_here and name not in self._lost:
            self._lost.add(name)
            left = len(self._workers) - len(self._lost)
            messages.warning(f"{name} ({address}) is gone; workers left: {left}")

    def _end(self) -> None:
        if self._has_ended.is_set():
            return
        names = ", ".join(f"{name} ({address})" for name, address in self._workers.items())
        messages.error(
            f"no worker is left: {names} did not answer for "
            f"{_ALL_GONE_SECONDS:.0f} s; see their logs. A restart resumes from the last checkpoint"
        )
        sys.stdout.flush()
        os._exit(1)
