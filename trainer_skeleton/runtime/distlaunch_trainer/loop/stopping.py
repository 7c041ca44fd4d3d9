"""How all tasks agree to stop: one received a signal, or the GPUs of all are idle."""

from __future__ import annotations

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.task.stop_signal import StopSignal


def stop_vote(*, received: bool, is_idle: bool | None, replicas: int) -> int:
    """Return a summand: the sum over all replicas, or tasks, is above 0 if they are to stop.

    One that received a signal outweighs all others, and one with busy GPUs all with idle ones; one
    without measured GPUs (None) leaves it to the others.
    """
    if received:
        return replicas**2
    return 0 if is_idle is None else 1 if is_idle else -replicas


def vote_to_stop(stop: StopSignal, report: Report, cluster: Cluster) -> int:
    """Return the vote of this task, and of each of its replicas."""
    is_idle = report.figures.is_idle
    return stop_vote(received=stop.received, is_idle=is_idle, replicas=cluster.replicas)
