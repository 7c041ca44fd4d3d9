"""A profile of chosen steps for TensorBoard's profiler, taken on the chief."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import tensorflow as tf


class Profile:
    """Profiles the global steps from ``first`` to ``last``, counted from 1, on the chief.

    Other tasks only end their executions at the same steps.
    """

    def __init__(self, steps: tuple[int, int] | None, logs_dir: str, *, is_chief: bool) -> None:
        self._first, self._last = steps or (0, 0)
        self._edges = (self._first - 1, self._last) if steps else ()
        self._logs_dir = logs_dir
        self._is_chief = is_chief
        self._is_running = False

    def boundary(self, step: int, end: int) -> int:
        """Return where an execution after ``step`` ends at the latest: at ``end``, or earlier.

        Profiled steps are executed one by one, so that the profiler knows each.
        """
        if self._first <= step + 1 <= self._last:
            return step + 1
        return min(edge for edge in (*self._edges, end) if edge > step)

    def is_edge(self, step: int) -> bool:
        """Return whether the steps up to ``step`` must be done before others are launched."""
        return step in self._edges

    def start(self, step: int) -> None:
        """Start before the execution after ``step``, if it is the first one to profile."""
        if self._is_chief and self._first == step + 1:
            tf.profiler.experimental.start(self._logs_dir)
            self._is_running = True

    def trace(self, step: int) -> AbstractContextManager[object]:
        """Return a context for the execution after ``step``, which names it in the profile."""
        if not self._is_running:
            return nullcontext()
        return tf.profiler.experimental.Trace("train", step_num=step + 1, _r=1)

    def stop(self, step: int) -> None:
        """Write the profile when ``step``, the last one, is done."""
        if step >= self._last:
            self.close()

    def close(self) -> None:
        """Write the profile of the steps so far, if one is being taken."""
        if self._is_running:
            tf.profiler.experimental.stop()
            self._is_running = False

    def missing(self, step: int) -> str | None:
        """Return a warning if a run that ends after ``step`` has not reached the first step."""
        if step >= self._first:
            return None
        return f"--profile {self._first}:{self._last}: the run ends after step {step}"
