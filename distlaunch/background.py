"""Work on a daemon thread."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")


class BackgroundTask(Generic[_Result]):
    """Runs a function on a daemon thread, which does not keep the process alive."""

    def __init__(self, function: Callable[[], _Result]) -> None:
        self._function = function
        self._results: list[_Result] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether the function has returned or raised."""
        return not self._thread.is_alive()

    def result(self, timeout: float | None = None) -> _Result:
        """Wait for the function and return its result, or raise its exception.

        Raises
        ------
        TimeoutError
            If it is still running after `timeout` seconds; it keeps running.
        """
        while timeout is None and sys.platform == "win32" and not self.has_ended:
            self._thread.join(0.1)  # which Ctrl-C interrupts between two calls only
        self._thread.join(timeout)
        if not self.has_ended:
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._function())
        except BaseException as error:  # noqa: BLE001 - result() raises it
            self._error = error
