"""What follows when a replica fails, as Vertex AI's documentation has it.

The rules (https://cloud.google.com/vertex-ai/docs/training/understanding-training-service):

- An exception in the user's program, and want of memory, are permanent: the whole job is shut down.
- The exit codes 6 and 134 (SIGABRT), 11 and 139 (SIGSEGV) may be transient: the job is restarted up
  to three times.
- A replica lost to anything else is restarted alone, at the same address, up to five times; when it
  is lost once more, the whole job is restarted, up to three times.
- `scheduling.restartJobOnWorkerRestart` restarts the whole job where a worker would be restarted,
  `scheduling.disableRetries` nothing.

Which exit codes are 'anything else' it does not say. Here they are those above 128: a program that
was ended by a signal, as it is when its machine is taken away. AI Platform Training documented the
same line: up to 128 permanent, above it worth another try.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum, auto
from typing import TYPE_CHECKING

from distlaunch.emulator.run.running import START_ERROR

if TYPE_CHECKING:
    from distlaunch.emulator.run.running import Ended
    from distlaunch.emulator.run.work import Scheduling
    from distlaunch.job.model import Task

REPLICA_RESTARTS = 5
JOB_RESTARTS = 3

_TRANSIENT = (6, 134, 11, 139)


class Next(Enum):
    """What is done about a replica that failed."""

    RESTART_REPLICA = auto()
    RESTART_JOB = auto()
    FAIL = auto()


class Restarts:
    """Counts the restarts of one job."""

    def __init__(self, scheduling: Scheduling) -> None:
        self._scheduling = scheduling
        self._of_replica: Counter[Task] = Counter()
        self._of_job = 0

    def after(self, task: Task, ended: Ended) -> Next:
        """Say what follows when a replica ended with another code than 0."""
        if not self._scheduling.retries or ended.out_of_memory:
            return Next.FAIL
        if ended.code in _TRANSIENT:
            return self._restart_job()
        if ended.code <= START_ERROR:
            return Next.FAIL
        is_too_often = self._of_replica[task] == REPLICA_RESTARTS
        if is_too_often or self._scheduling.restarts_whole_job:
            return self._restart_job()
        self._of_replica[task] += 1
        return Next.RESTART_REPLICA

    def _restart_job(self) -> Next:
        if self._of_job == JOB_RESTARTS:
            return Next.FAIL
        self._of_job += 1
        self._of_replica.clear()
        return Next.RESTART_JOB
