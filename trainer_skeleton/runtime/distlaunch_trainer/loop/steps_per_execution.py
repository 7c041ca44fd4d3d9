"""How many steps are executed together: as many as take a fraction of a second."""

from __future__ import annotations

import math
import time

_SECONDS_PER_EXECUTION = 0.25
_MAX_STEPS = 50


class StepsPerExecution:
    """Measures the steps, and proposes how many the next execution should have.

    The number grows by a factor of four at most, up to 50.
    """

    def __init__(self) -> None:
        self.steps = 1  # of an execution, as all tasks have agreed
        self._seconds_per_step = math.inf
        self._last_end = 0.0

    @property
    def is_measured(self) -> bool:
        """Whether an execution has ended."""
        return math.isfinite(self._seconds_per_step)

    def measure(self, started: float, steps: int) -> None:
        """Measure an execution that ends now; it began when the one before had ended.

        It was launched at `started`, by ``time.perf_counter``.
        """
        now = time.perf_counter()
        self._seconds_per_step = (now - max(started, self._last_end)) / steps
        self._last_end = now

    def propose(self) -> float:
        """Return the number of steps that the next execution should have, 1 or more."""
        steps = min(_MAX_STEPS, 4 * self.steps, _SECONDS_PER_EXECUTION / self._seconds_per_step)
        return max(1.0, float(int(steps)))
