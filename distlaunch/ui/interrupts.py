"""Ctrl-C and its like, held back for a moment or taken in turn."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Holds Ctrl-C back while it is entered; it comes when it is left, or in `let_through`.

    It may be entered several times, in the main thread; elsewhere no signal is ever handled, and
    this does nothing, as where Ctrl-C is ignored.
    """

    def __init__(self) -> None:
        self._before: Any = None
        self._is_open = False
        self._came = False

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Let it come while this is entered, as where something may take long."""
        if self._came:
            self._pass_on()
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and callable(signal.getsignal(signal.SIGINT)):
            self._before = signal.getsignal(signal.SIGINT)
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            if self._came:
                self._pass_on()
            self._before = None

    def _handle(self, number: int, frame: Any) -> None:
        if self._is_open:
            self._before(number, frame)
        else:
            self._came = True

    def _pass_on(self) -> None:
        self._came = False
        self._before(signal.SIGINT, None)


class StopSignals:
    """While this is entered, stop signals are held until they are read.

    The second one calls `at_second` at once, in case the reader is stuck; a third one does
    what it always does. Further hang-ups are none of these: shells send more than one.
    """

    def __init__(self) -> None:
        self.at_second: Callable[[], None] | None = None
        self._received: list[int] = []
        self._count = 0
        self._has_hung_up = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._reading, self._writing = os.pipe()
        for end in (self._reading, self._writing):
            os.set_blocking(end, False)
        self._wakeup_before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in _STOPPING:
            # `nohup` ignores one for its program, and means it.
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGINT:
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._reading)
        os.close(self._writing)

    def fileno(self) -> int:
        return self._reading

    def received(self) -> list[int]:
        """Return the signals that came since the last call."""
        with suppress(BlockingIOError):
            os.read(self._reading, 4096)
        received, self._received = self._received, []
        return received

    def _take(self, number: int, _frame: Any) -> None:
        if number == signal.SIGHUP and self._has_hung_up:
            return
        self._has_hung_up = self._has_hung_up or number == signal.SIGHUP
        self._received.append(number)
        self._count += 1
        if self._count == 2:
            for stopping in self._before:
                signal.signal(stopping, signal.SIG_DFL)
            if self.at_second:
                self.at_second()
