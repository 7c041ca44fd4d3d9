"""What the training loop measures: the time of its steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.step.step_timing import (
    StepTimer,
    mean_timing,
    table_of_steps,
    task_timing,
)


class Measurements:
    """Measures the steps of a loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # Steps and `table_of_steps` of the epochs in this process.
        self._epochs: list[tuple[int, np.ndarray]] = []

    def end_epoch(self, timer: StepTimer | None) -> dict[str, Any] | None:
        """Return an epoch's ``timing``: the means over all tasks; None without steps."""
        seconds = self._cluster.all_gather(timer.take()) if timer else np.empty(0)
        if not seconds.size:
            return None
        self._epochs.append((seconds.shape[2], table_of_steps(seconds)))
        return mean_timing(*self._epochs[-1])

    @property
    def timing(self) -> dict[str, Any] | None:
        """Where the time of steps went, over all tasks and for each; None without steps.

        Of the epochs of this process after the first, in which functions are traced.
        """
        epochs = self._epochs[1:] or self._epochs
        if not epochs:
            return None
        steps, tables = zip(*epochs, strict=True)
        mean = np.average(tables, axis=0, weights=steps)
        return task_timing(sum(steps), mean, self._cluster.role.peers)
