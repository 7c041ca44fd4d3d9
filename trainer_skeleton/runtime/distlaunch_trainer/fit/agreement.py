"""Agreements of all tasks to stop or to end ``fit``."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from distlaunch_trainer.cluster.collectives import Cluster

_AGREE_SECONDS = 0.5
_MAX_BATCHES_BETWEEN = 10_000


@dataclass(frozen=True)
class Vote:
    """What one task wants, or what all have agreed on.

    Attributes
    ----------
    must_stop
        Whether the run is to stop, because of a signal.
    must_end
        Whether ``fit`` is to end, because a callback wants it.
    loss
        The task's loss, or the mean of all tasks' losses; not a number if it is not known.
    """

    must_stop: bool
    must_end: bool
    loss: float = math.nan


class Agreement:
    """The votes of all tasks, about every half second: more often they would cost time.

    Parameters
    ----------
    cluster
        The cluster.
    after_each_batch
        Whether to vote after each batch, as a callback may end ``fit`` after any.
    """

    def __init__(self, cluster: Cluster, *, after_each_batch: bool = False) -> None:
        self._cluster = cluster
        self._most_batches = 1 if after_each_batch else _MAX_BATCHES_BETWEEN
        self._batches = 0
        self._due = 1
        self._interval = 1
        self._last = time.perf_counter()

    def restart_clock(self) -> None:
        """Leave out the time since the last vote, as no batches were trained in it."""
        self._last = time.perf_counter()

    def is_due(self) -> bool:
        """Count a batch; return whether all tasks vote after it."""
        self._batches += 1
        return self._batches >= self._due

    def reach(self, vote: Vote) -> Vote:
        """Return what all tasks have agreed on; a collective."""
        seconds = max(time.perf_counter() - self._last, 1e-6) / self._interval
        batches = min(_AGREE_SECONDS / seconds, 4 * self._interval, self._most_batches)
        proposal = batches if self._cluster.role.is_chief else 0.0
        own = np.array([vote.must_stop, vote.must_end, vote.loss, proposal], np.float64)
        must_stop, must_end, loss, batches = self._cluster.all_reduce_sum(own).tolist()
        self._interval = max(1, int(batches))
        self._due = self._batches + self._interval
        self._last = time.perf_counter()
        return Vote(bool(must_stop), bool(must_end), loss / self._cluster.role.num_workers)
