"""What follows when a replica fails.

The rules of Vertex AI's documentation
(https://cloud.google.com/vertex-ai/docs/training/understanding-training-service):

- An exception in the user's program and lack of memory are permanent: the whole job is shut down.
- The exit codes 6 and 134 (SIGABRT), 11 and 139 (SIGSEGV) may be transient: the job is restarted up
  to three times.
- A replica lost for any other reason is restarted alone, at the same address, up to five times; at
  the next loss the whole job is restarted, up to three times.
- `scheduling.restartJobOnWorkerRestart` restarts the whole job where a worker would be restarted,
  `scheduling.disableRetries` nothing.

Which exit codes are 'any other reason' is not documented. Here they are those above 128: a program
ended by a signal, such as when its machine is taken away. AI Platform Training documented the same:
up to 128 permanent, above 128 worth a retry.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum, auto
from typing import TYPE_CHECKING

from distlaunch.emulator.run.backend import START_ERROR

if TYPE_CHECKING:
    from distlaunch.emulator.run.backend import ExitStatus
    from distlaunch.emulator.run.job_spec import Limits
    from distlaunch.job.model import Task

REPLICA_RESTARTS = 5
JOB_RESTARTS = 3

_TRANSIENT = (6, 134, 11, 139)


class Decision(Enum):
    """What is done about a replica that failed."""

    RESTART_REPLICA = auto()
    RESTART_JOB = auto()
    FAIL = auto()


class RestartPolicy:
    """Decides on the restarts of one job, and counts them."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._replica_restarts: Counter[Task] = Counter()
        self._job_restarts = 0

    def decide(self, task: Task, status: ExitStatus) -> Decision:
        """Decide what follows after a replica failed."""
        if not self._limits.retries or status.out_of_memory:
            return Decision.FAIL
        if status.code in _TRANSIENT:
            return self._restart_job()
        if status.code <= START_ERROR:
            return Decision.FAIL
        is_too_often = self._replica_restarts[task] == REPLICA_RESTARTS
        if is_too_often or self._limits.restarts_whole_job:
            return self._restart_job()
        self._replica_restarts[task] += 1
        return Decision.RESTART_REPLICA

    def _restart_job(self) -> Decision:
        if self._job_restarts == JOB_RESTARTS:
            return Decision.FAIL
        self._job_restarts += 1
        self._replica_restarts.clear()
        return Decision.RESTART_JOB
