"""Ctrl-C and its like, taken in turn."""

from __future__ import annotations

import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

_HANG_UP: int | None = getattr(signal, "SIGHUP", None)  # Windows has none
_STOPPING = (signal.SIGINT, signal.SIGTERM, *([_HANG_UP] if _HANG_UP else []))


class StopSignals:
    """While this is entered, stop signals are held until they are read.

    The first one calls `at_first` and the second one `at_second` at once, in case the reader is
    stuck; a third one does what it always does. Further hang-ups are none of these: shells send
    more than one.
    """

    def __init__(self, at_first: Callable[[], None] | None = None) -> None:
        self.at_first = at_first
        self.at_second: Callable[[], None] | None = None
        self._received: list[int] = []
        self._count = 0
        self._has_hung_up = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._reading, self._writing = socket.socketpair()  # Windows selects no pipes
        for end in (self._reading, self._writing):
            end.setblocking(False)
        writing = self._writing.fileno()
        self._wakeup_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in _STOPPING:
            # `nohup` ignores one for its program, and means it.
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGINT:
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._reading.close()
        self._writing.close()

    def fileno(self) -> int:
        return self._reading.fileno()

    def received(self) -> list[int]:
        """Return the signals that came since the last call."""
        with suppress(BlockingIOError):
            self._reading.recv(4096)
        received, self._received = self._received, []
        return received

    def _take(self, number: int, _frame: Any) -> None:
        if number == _HANG_UP and self._has_hung_up:
            return
        self._has_hung_up = self._has_hung_up or number == _HANG_UP
        self._received.append(number)
        self._count += 1
        if self._count == 1 and self.at_first:
            self.at_first()
        if self._count == 2:
            for stopping in self._before:
                signal.signal(stopping, signal.SIG_DFL)
            if self.at_second:
                self.at_second()
