"""Warns of workers that are gone, and ends the chief if all are: TensorFlow would wait for ever."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from distlaunch_trainer.task import messages
from distlaunch_trainer.task.addresses import listens

_POLL_SECONDS = 1.0
_ALL_GONE_SECONDS = 10.0  # for which a platform may take to restart one


@contextmanager
def watch_workers(workers: Mapping[str, str]) -> Iterator[None]:
    """Look for the workers, addresses by name, while the chief trains."""
    has_ended = threading.Event()
    threading.Thread(
        target=_watch, args=(workers, has_ended), name="lost-workers", daemon=True
    ).start()
    try:
        yield
    finally:
        has_ended.set()


def _watch(workers: Mapping[str, str], has_ended: threading.Event) -> None:
    lost: set[str] = set()
    last_seen = time.monotonic()
    while not has_ended.wait(_POLL_SECONDS):
        for name, address in workers.items():
            is_here = listens(address)
            if is_here and name in lost:
                lost.remove(name)
                messages.notice(f"trainer: {name} is back and trains again")
            elif not is_here and name not in lost:
                lost.add(name)
                left = len(workers) - len(lost)
                messages.warning(f"{name} ({address}) is gone; workers left: {left}")
        if len(lost) < len(workers):
            last_seen = time.monotonic()
        elif time.monotonic() > last_seen + _ALL_GONE_SECONDS and not has_ended.is_set():
            _end(workers)


def _end(workers: Mapping[str, str]) -> None:
    names = ", ".join(f"{name} ({address})" for name, address in workers.items())
    messages.error(
        f"no worker is left: {names} did not answer for "
        f"{_ALL_GONE_SECONDS:.0f} s; see their logs. A restart resumes from the last checkpoint"
    )
    sys.stdout.flush()
    os._exit(1)
