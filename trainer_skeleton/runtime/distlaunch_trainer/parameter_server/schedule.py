"""Steps that are scheduled over the workers, and their results in the order of the steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

_STEPS_PER_WORKER = 4  # that are scheduled at once


class Schedule:
    """Schedules a function over the workers of a coordinator.

    Parameters
    ----------
    coordinator
        The coordinator.
    function
        Of an iterator over the worker's batches, and the number of the step.
    batches
        The iterators of all workers.
    workers
        Number of workers.
    """

    def __init__(self, coordinator: Any, function: Any, batches: Any, workers: int) -> None:
        self._coordinator = coordinator
        self._function = function
        self._batches = batches
        self._at_once = _STEPS_PER_WORKER * workers
        self._pending: deque[Any] = deque()
        self._scheduled = 0

    def results(self, first: int, end: int) -> Iterator[np.ndarray]:
        """Yield the results of the steps ``first ... end-1`` in their order.

        What was scheduled when the caller ends early is left to `rest`.
        """
        self._scheduled = first
        while self._scheduled < end or self._pending:
            while self._scheduled < end and len(self._pending) < self._at_once:
                self._schedule()
            yield self._next()

    def rest(self) -> Iterator[np.ndarray]:
        """Yield the results of what is scheduled; nothing runs afterwards."""
        while self._pending:
            yield self._next()

    def _schedule(self) -> None:
        arguments = (self._batches, tf.constant(self._scheduled, tf.int64))
        self._pending.append(self._coordinator.schedule(self._function, args=arguments))
        self._scheduled += 1

    def _next(self) -> np.ndarray:
        return np.asarray(self._pending.popleft().fetch())
