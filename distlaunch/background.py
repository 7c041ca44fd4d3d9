"""Work that is done beside other work."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")


class Meanwhile(Generic[_Result]):
    """Has something done from now on, on a thread that nobody waits for at the end of the process.

    Parameters
    ----------
    work
        What is to be done.
    """

    def __init__(self, work: Callable[[], _Result]) -> None:
        self._work = work
        self._done: list[_Result] = []
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._do, daemon=True)
        self._thread.start()

    def result(self, timeout: float | None = None) -> _Result:
        """Wait for it; what it raised is raised here.

        Parameters
        ----------
        timeout
            Seconds to wait at most; None to wait for as long as it takes.

        Raises
        ------
        TimeoutError
            If it is not done by then; it goes on all the same.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError
        if self._problem is not None:
            raise self._problem
        return self._done[0]

    def _do(self) -> None:
        try:
            self._done.append(self._work())
        except BaseException as problem:  # noqa: BLE001 - it is raised where it is asked for
            self._problem = problem
