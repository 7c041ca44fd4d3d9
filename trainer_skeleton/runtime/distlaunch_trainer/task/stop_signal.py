"""SIGTERM: ends this task at once before training, and at a step that all agree on during it.

TensorFlow replaces the handler of SIGTERM while the cluster forms, and its own only logs the
signal. So SIGTERM is blocked before TensorFlow is imported, for its threads inherit that, until
`StopSignal` has replaced TensorFlow's handler; what was sent meanwhile is delivered then.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import AbstractContextManager
from typing import Any, NoReturn

STOPPED = 143
"""Exit code of a run that was stopped by a signal (128 + SIGTERM)."""

IDLE = 80
"""Exit code of a run that was stopped because its GPUs were idle: none that Google or Slurm retry.

It is none of sysexits.h, which end at 78, and none of a shell, which begin at 126.
"""

_POLL_SECONDS = 0.1
_BEFORE = "before the training began"


def block() -> None:
    """Block SIGTERM in this thread and in those that it starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    # TensorFlow's threads block it to the end, and may run a function of the user's that forks.
    os.register_at_fork(after_in_child=unblock)


def unblock() -> None:
    """Unblock SIGTERM in this thread; one that was sent meanwhile is delivered."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def is_pending() -> bool:
    """Return whether SIGTERM was sent while it is blocked."""
    return signal.SIGTERM in signal.sigpending()


def end_if_pending() -> None:
    """End this process if SIGTERM was sent while it is blocked."""
    if is_pending():
        _end()


def sleep(seconds: float) -> bool:
    """Sleep while SIGTERM is blocked, until it is sent; return whether it was."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not is_pending():
        time.sleep(_POLL_SECONDS)
    return is_pending()


class StopSignal(AbstractContextManager):
    """Handles SIGTERM, and unblocks it."""

    def __init__(self) -> None:
        self.received = False
        self._is_deferred = False
        self._when = _BEFORE
        # In another thread, as in a worker of Ray Train, the signal is left to the launcher.
        self._before: Any = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._handle)
            unblock()

    def __exit__(self, *_: object) -> None:
        """Leave SIGTERM to the handler that was there before."""
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def defer(self) -> None:
        """Only set `received` from now on: the tasks agree on a step to stop at."""
        self._is_deferred = True

    def end_at_once(self, when: str) -> None:
        """End this process on SIGTERM from now on, and print when that was."""
        self._is_deferred = False
        self._when = when

    def _handle(self, *_: object) -> None:
        if not self._is_deferred:
            _end(self._when)
        self.received = True


def _end(when: str = _BEFORE) -> NoReturn:
    """End this process, without waiting for peers as TensorFlow's own shutdown would."""
    os.write(2, f"trainer: stopped by a signal {when}\n".encode())
    os._exit(STOPPED)
