"""Ctrl-C held back for a moment in which something must be done as a whole."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self


class Interrupts:
    """Holds Ctrl-C back while it is entered; it comes when it is left, or in `let_through`.

    It may be entered again and again, in the main thread; elsewhere no signal is ever handled, and
    this does nothing. What else than an exception Ctrl-C means is left as it is.
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
        if self._before is None:
            return
        before, self._before = self._before, None
        signal.signal(signal.SIGINT, before)
        if self._came:
            self._came = False
            before(signal.SIGINT, None)

    def _handle(self, number: int, frame: Any) -> None:
        if self._is_open:
            self._before(number, frame)
        else:
            self._came = True

    def _pass_on(self) -> None:
        self._came = False
        self._before(signal.SIGINT, None)
