"""Follow a job on Slurm as a stream of events: states, lines and progress, until it has ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from distlaunch.engines.slurm.logs import TaskLogReader
from distlaunch.engines.state_tracker import StateTracker
from distlaunch.errors import SlurmUnreachable
from distlaunch.events import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlaunch.engines.api import JobStatus, LogSelection
    from distlaunch.engines.slurm.launch_folder import LaunchFolder
    from distlaunch.events import Event

_STATE_INTERVAL = 3.0  # seconds between two calls of squeue
_FILE_INTERVAL = 0.5  # seconds between two looks at the files


class SlurmFollower:
    """Follows a job; iterating again after an interrupt resumes.

    Attributes
    ----------
    status : JobStatus
        The latest.
    is_stalled : bool
        Never: there is no other place for the job.
    """

    def __init__(
        self,
        folder: LaunchFolder,
        job: JobStatus,
        selection: LogSelection | None,
        read_status: Callable[[], JobStatus],
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.status = job
        self.is_stalled = False
        self._folder = folder
        self._read_status = read_status
        self._sleep = sleep
        self._clock = clock
        self._reader = TaskLogReader(folder, job.tasks, selection)
        self._states = StateTracker()
        self._is_state_shown = False
        self._due = clock() + _STATE_INTERVAL
        self._is_outage_reported = False
        self._waits_for = ""

    def __iter__(self) -> Iterator[Event]:
        """Yield events until the job has ended and all that it wrote was read.

        SlurmError is raised if the job cannot be looked up for another reason than an outage.
        """
        if not self._is_state_shown:
            self._is_state_shown = True
            yield from self._states.update(self.status)
            yield from self._explain_wait()
        while True:
            has_ended = self.status.has_ended  # before the last look at the files
            yield from self._reader.read()
            if has_ended:
                return
            if self._clock() >= self._due or self._folder.end_file.exists():
                yield from self._poll_state()
            if not self.status.has_ended:
                self._sleep(_FILE_INTERVAL)

    def _poll_state(self) -> Iterator[Event]:
        try:
            self.status = self._read_status()
        except SlurmUnreachable as error:
            if not self._is_outage_reported:
                yield Notice(f"{error}; retrying, the job keeps running", "warning")
            self._is_outage_reported = True
        else:
            self._is_outage_reported = False
            # What the tasks wrote before a change comes before it.
            changes = self._states.update(self.status)
            if changes:
                yield from self._reader.read()
            yield from changes
            yield from self._explain_wait()
        self._due = self._clock() + _STATE_INTERVAL

    def _explain_wait(self) -> Iterator[Event]:
        """Yield Slurm's reason for which the job waits, such as Resources, when it changes."""
        reason = str(self.status.resource["waits_for"])
        if reason != self._waits_for:
            self._waits_for = reason
            if reason:
                yield Notice(f"Slurm: the job waits ({reason})")
