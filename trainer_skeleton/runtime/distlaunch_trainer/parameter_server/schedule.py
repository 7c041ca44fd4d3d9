"""Steps that are scheduled over the workers, and their results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

LOST_TASK = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
"""What TensorFlow raises for a worker or a server that is gone."""

_STEPS_PER_WORKER = 4  # that are scheduled at once
_MOST_LOST_RESULTS = 100  # one after the other


class Schedule:
    """Schedules a function over the workers of a coordinator.

    It takes an iterator over the worker's batches, and the number of the step.
    """

    def __init__(
        self,
        coordinator: Any,
        function: Any,
        batches: Any,
        workers: int,
        is_server_lost: Callable[[], bool],
    ) -> None:
        self._coordinator = coordinator
        self._function = function
        self._batches = batches
        self._at_once = _STEPS_PER_WORKER * workers
        self._is_server_lost = is_server_lost
        self._pending: deque[tuple[int, Any]] = deque()
        self._scheduled = 0

    def results(self, first: int, end: int) -> Iterator[np.ndarray]:
        """Yield the results of the steps ``first ... end-1``, in about their order.

        What was scheduled when the caller ends early is left to `rest`.
        """
        self._scheduled = first
        while self._scheduled < end or self._pending:
            while self._scheduled < end and len(self._pending) < self._at_once:
                self._schedule(self._scheduled)
                self._scheduled += 1
            yield self._next()

    def rest(self) -> Iterator[np.ndarray]:
        """Yield the results of what is scheduled; nothing runs afterwards."""
        while self._pending:
            yield self._next()

    def _schedule(self, step: int) -> None:
        arguments = (self._batches, tf.constant(step, tf.int64))
        value = self._coordinator.schedule(self._function, args=arguments)
        self._pending.append((step, value))

    def _next(self) -> np.ndarray:
        """Return the next result; a step whose worker was lost with its result runs again."""
        for _ in range(_MOST_LOST_RESULTS):
            step, value = self._pending.popleft()
            try:
                return np.asarray(value.fetch())
            except LOST_TASK as error:
                if self._is_server_lost():
                    raise
                lost = error
                self._schedule(step)
        raise lost
