"""What a task trains on and what it reads for that, reported to a launcher that requests it.

``distlaunch local --audit`` sets ``DISTLAUNCH_AUDIT``. Each batch then carries the numbers of its
examples; they are recorded where the step is computed, so that nothing between the files and
the model is missed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from .report import Report

# The launcher takes a line of more than 1 MiB for no event.
_RUNS_PER_EVENT = 20_000


def is_audited(environ: Any = os.environ) -> bool:
    """Return whether a launcher requests an audit."""
    return bool(environ.get("DISTLAUNCH_AUDIT"))


class Audit:
    """The audit of one task."""

    def __init__(
        self,
        report: Report,
        *,
        examples: int,
        index_bytes: int = 0,  # that this task has read to index the data
        data_bytes: int = 0,  # of all data, 0 if that is not known
        # From what identifies examples to their numbers; called on all tasks together.
        numbers_of: Callable[[np.ndarray], np.ndarray] = np.copy,
    ) -> None:
        self.examples = examples
        self._events = report
        self._index_bytes = index_bytes
        self._data_bytes = data_bytes
        self._numbers_of = numbers_of
        self._seen: list[np.ndarray] = []
        self._records = 0
        self._bytes = 0

    def record(self, examples: np.ndarray) -> None:
        """Record the examples of a step: their numbers, and their bytes if known."""
        if examples.ndim > 1:
            # Of records, with their frames: /proc/PID/io also counts what is no data.
            self._bytes += int(examples[:, 1].sum())
            examples = examples[:, 0]
        self._seen.append(examples)

    def flush(self, first: int, stop: int) -> None:
        """Report what was seen in the steps ``first ... stop-1``, and what was read so far."""
        numbers = self._numbers_of(np.concatenate([*self._seen, np.empty(0, np.int64)]))
        self._seen = []
        self._records += len(numbers)
        runs = runs_of(numbers)
        for at in range(0, max(1, len(runs)), _RUNS_PER_EVENT):
            part = runs[at : at + _RUNS_PER_EVENT].tolist()
            self._events.event("audit", kind="seen", positions=part, **{"from": first, "to": stop})
        self._events.event(
            "audit",
            kind="read",
            bytes=self._bytes if self._data_bytes else None,
            index_bytes=self._index_bytes,
            data_bytes=self._data_bytes,
            records=self._records,
        )


def runs_of(numbers: np.ndarray) -> np.ndarray:
    """Return the runs ``[first, count]`` of consecutive numbers; one seen twice is in two runs."""
    ordered = np.sort(numbers)
    starts = np.flatnonzero(np.diff(ordered, prepend=-2) != 1)
    counts = np.diff(starts, append=len(ordered))
    return np.stack([ordered[starts], counts], axis=1).astype(np.int64)
