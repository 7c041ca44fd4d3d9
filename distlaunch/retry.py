"""Retries of calls that may succeed later: deadlines, and exponential backoff with jitter."""

from __future__ import annotations

import time
from random import SystemRandom
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_DEADLINE = 60.0  # seconds for which a call to Google that fails is retried
CALL_TIMEOUT = 120.0  # seconds for which a file in Cloud Storage is read

_RANDOM = SystemRandom()  # does not disturb the program's seeded random numbers


class Backoff:
    """The delays between attempts: doubled after each failure, with jitter, until a deadline.

    All are seconds: of the first delay and of the longest, before jitter takes off up to half, and
    from now until the last retry must start.
    """

    def __init__(
        self,
        initial: float = 0.5,
        maximum: float = 16.0,
        *,
        deadline: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._initial = initial
        self._maximum = maximum
        self._deadline = deadline
        self._clock = clock
        self._started = clock()
        self._next = initial

    @property
    def elapsed(self) -> float:
        """Seconds since the first attempt."""
        return self._clock() - self._started

    def next_delay(self, at_least: float = 0.0) -> float | None:
        """Return the seconds to wait before the next attempt, None if the deadline is earlier.

        `at_least` is what the server requested, such as by ``Retry-After``.
        """
        delay = max(self._next * _RANDOM.uniform(0.5, 1.0), at_least)
        if self._deadline is not None and self.elapsed + delay > self._deadline:
            return None
        self._next = min(2 * self._next, self._maximum)
        return delay

    def reset(self) -> None:
        """Start again from the initial delay, after a success."""
        self._next = self._initial
