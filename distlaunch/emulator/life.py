"""The lives of jobs: states over time, restarts, and how a job ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distlaunch.emulator.logs import Logs
    from distlaunch.emulator.running import Machines
    from distlaunch.emulator.store import Store


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a job stays in the states in which nothing of its own happens; in seconds.

    Parameters
    ----------
    queued, pending
        Before it is PENDING, and before its replicas start.
    error
        Between a job's end and the moment that its error is told; Vertex AI takes about a minute.
    grace
        Between SIGTERM and SIGKILL for replicas that are stopped.
    expires
        Whether jobs end EXPIRED instead of leaving the queue.
    """

    queued: float = 0.1
    pending: float = 0.1
    error: float = 0.3
    grace: float = 5.0
    expires: bool = False


class Lives:
    """Runs the jobs of a store, each from its creation to its end.

    Parameters
    ----------
    store
        Where the jobs are; `store.get(name)` gives one as JSON in Google's names and
        `store.update(name, state=…, startTime=…)` changes it. A state is Google's full name
        (``JOB_STATE_RUNNING``), a time RFC 3339 in UTC.
    machines
        What runs the replicas.
    logs
        Where their lines go.
    pace
        How long things take.
    """

    def __init__(
        self, store: Store, machines: Machines, logs: Logs, *, pace: Pace | None = None
    ) -> None:
        raise NotImplementedError

    def begin(self, name: str) -> None:
        """Start the life of a job that is in the store, JOB_STATE_QUEUED; returns at once."""
        raise NotImplementedError

    def cancel(self, name: str) -> None:
        """Have a job end CANCELLED, by way of CANCELLING; one that has ended is left as it is."""
        raise NotImplementedError

    def close(self) -> None:
        """End all lives and leave nothing running; the emulator ends."""
        raise NotImplementedError
