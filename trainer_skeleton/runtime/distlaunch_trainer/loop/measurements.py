"""What the training loop measures: the time of its steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.step.step_timing import StepTimer, StepTimes, mean_timing, timing_of_steps


class Measurements:
    """Measures the steps of a loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._timings: list[dict[str, Any]] = []  # of the epochs in this process

    def end_epoch(self, timer: StepTimer | None) -> dict[str, Any] | None:
        """Return an epoch's ``timing`` without that of each task; a collective."""
        if timer is None:
            return None
        own = timer.take()
        gathered = self._cluster.all_gather(np.stack([own.total, own.input, own.exchange]))
        times = [StepTimes(*seconds) for seconds in gathered]
        timing = timing_of_steps(dict(zip(self._cluster.role.peers, times, strict=True)))
        if timing is None:
            return None
        self._timings.append(timing)
        return {name: value for name, value in timing.items() if name != "tasks"}

    @property
    def timing(self) -> dict[str, Any] | None:
        """Where the time of steps went, see `timing_of_steps`.

        Of the epochs of this process after the first, in which functions are traced.
        """
        return mean_timing(self._timings[1:] or self._timings)
