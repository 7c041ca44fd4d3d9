"""A job in the cloud as a stream of events: its states and its lines, until it has ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from distlaunch.events import Event
    from distlaunch.google.jobs import Jobs
    from distlaunch.google.logs import Logs


class Follow:
    """Follows a job; iterating goes on where an interrupted iteration was left.

    Parameters
    ----------
    job
        What Google last said of the job; `job` is what it says by now.
    tasks
        Whose lines (``chief``, ``worker:3``, ``vertex`` for the platform's own); all if empty.
    since
        RFC 3339: lines from then on; from the job's beginning if None.
    one_by_one
        Whether each entry is an event of its own with its time and severity, as JSON wants it.
    clock, sleep
        Seconds; `sleep` may be `Watch.wait`, which serves a slow reader meanwhile.
    """

    job: Mapping[str, Any]

    def __init__(
        self,
        jobs: Jobs,
        logs: Logs,
        job: Mapping[str, Any],
        *,
        tasks: Sequence[str] = (),
        since: str | None = None,
        one_by_one: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Event]:
        """Yield what happens until the job has ended and its last lines and its error are here.

        Raises
        ------
        GoogleError
            If the job may not be read or is not there any more.
        """
        raise NotImplementedError


def task_names(job: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of a job's tasks, the primary one first and ``vertex`` last, for a Watch."""
    raise NotImplementedError
