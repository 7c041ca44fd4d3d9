"""The replicas of one job, from their start until the job succeeds, fails or is stopped."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from dataclasses import dataclass
from enum import Enum, auto
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Literal

from distlaunch.emulator.run.backend import START_ERROR, CannotRun, ExitStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.emulator.logs import LogStore
    from distlaunch.emulator.run.backend import (
        Backend,
        CancellationToken,
        JobEnvironment,
        RunningReplica,
        Severity,
    )
    from distlaunch.emulator.run.job_spec import Limits, Replica, Workload
    from distlaunch.job.model import Task

REPLICA_RESTARTS = 5
JOB_RESTARTS = 3

_TRANSIENT = (6, 134, 11, 139)

_QUOTED_LINES = 20  # last lines on stderr of a failed replica that its error quotes
_POLL = 0.05  # seconds between two looks at the cancellation token


class Decision(Enum):
    """What is done about a replica that failed."""

    RESTART_REPLICA = auto()
    RESTART_JOB = auto()
    FAIL = auto()


class RestartPolicy:
    """Decides on the restarts of one job, and counts them.

    The rules are those of
    https://cloud.google.com/vertex-ai/docs/training/understanding-training-service:

    - An exception in the user's program and lack of memory are permanent: the job fails.
    - The exit codes 6 and 134 (SIGABRT), 11 and 139 (SIGSEGV) may be transient: the job is
      restarted up to three times.
    - A replica lost for any other reason is restarted alone, at the same address, up to five times;
      at the next loss the whole job is restarted, up to three times.
    - `scheduling.restartJobOnWorkerRestart` restarts the whole job where a worker would be
      restarted, `scheduling.disableRetries` nothing.

    Which exit codes are 'any other reason' is not documented. Here they are those above 128: a
    program ended by a signal, such as when its machine is taken away.
    """

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


@dataclass(frozen=True, slots=True)
class RunResult:
    """How the run of a group ended."""

    kind: Literal["succeeded", "failed", "stopped", "timed out", "expired", "crashed"]
    error: str = ""  # what failed, in Vertex AI's words
    metrics: str = ""  # what the program reported, JSON lines


class ReplicaGroup:
    """Runs a workload once, with the restarts that it needs."""

    def __init__(
        self,
        workload: Workload,
        backend: Backend,
        logs: LogStore,
        token: CancellationToken,
        *,
        grace: float,
    ) -> None:
        self._workload = workload
        self._backend = backend
        self._logs = logs
        self._token = token
        self._grace = grace
        self._restarts = RestartPolicy(workload.limits)
        self._running: dict[Task, RunningReplica] = {}
        self._last_errors: dict[Task, deque[str]] = {}
        self._exits: SimpleQueue[tuple[Replica, ExitStatus]] = SimpleQueue()

    def run(self, on_start: Callable[[], None]) -> RunResult:
        """Run it to its end and leave nothing; call `on_start` when all replicas are started."""
        try:
            environment = self._backend.prepare(self._workload, self._token)
            with contextlib.closing(environment):
                self._log_skipped_replicas()
                self._start_all(environment)
                on_start()
                result = self._supervise(environment)
                self._log("Tearing down training program.")
                self._stop_all()
                self._log("Finished tearing down training program.")
                return RunResult(result.kind, result.error, environment.metrics())
        except CannotRun as problem:
            if self._token.is_cancelled:
                return RunResult("stopped")
            return RunResult("failed", str(problem))

    def _supervise(self, environment: JobEnvironment) -> RunResult:
        deadline = time.monotonic() + self._workload.limits.timeout
        while not self._token.is_cancelled:
            if time.monotonic() > deadline:
                return RunResult("timed out")
            try:
                replica, status = self._exits.get(timeout=_POLL)
            except Empty:
                continue
            del self._running[replica.task]
            if status.code and not self._restart(environment, replica, status):
                return RunResult("failed", self._error(replica, status))
            if status.code == 0 and replica is self._workload.replicas[0]:
                return RunResult("succeeded")
        return RunResult("stopped")

    def _restart(self, environment: JobEnvironment, replica: Replica, status: ExitStatus) -> bool:
        """Restart the replica or the job; return whether that is allowed."""
        match self._restarts.decide(replica.task, status):
            case Decision.RESTART_REPLICA:
                self._log(f"Restarting {replica.name}, which ended with {status.code}.")
                self._start(environment, replica)
            case Decision.RESTART_JOB:
                self._log(f"Restarting the job: {replica.name} ended with {status.code}.")
                self._stop_all()
                self._start_all(environment)
            case Decision.FAIL:
                return False
        return True

    def _log_skipped_replicas(self) -> None:
        count = sum(not replica.is_started for replica in self._workload.replicas)
        if count:
            replicas = f"{count} replica{'s are' if count > 1 else ' is'}"
            why = "as the emulator does not have Google's image"
            self._log(f"Reduction Server: its {replicas} not started, {why}.")

    def _start_all(self, environment: JobEnvironment) -> None:
        for replica in self._workload.replicas:
            if replica.is_started:
                self._start(environment, replica)

    def _start(self, environment: JobEnvironment, replica: Replica) -> None:
        last_errors = self._last_errors[replica.task] = deque(maxlen=_QUOTED_LINES)

        def write(severity: Severity, text: str) -> None:
            if severity == "ERROR":
                last_errors.append(text)
            self._write(replica.name, severity, text)

        self._running[replica.task] = environment.start(
            replica, write, lambda status: self._exits.put((replica, status))
        )

    def _stop_all(self) -> None:
        """Stop what runs and wait for its end; the emulator's shutdown grants no time."""
        grace = None
        while self._running:
            allowed = 0.0 if self._token.is_shutdown else self._grace
            if allowed != grace:
                grace = allowed
                for running in self._running.values():
                    running.stop(grace)
            try:
                replica, _ = self._exits.get(timeout=_POLL)
            except Empty:
                continue
            del self._running[replica.task]

    def _error(self, replica: Replica, status: ExitStatus) -> str:
        """Describe the failure of a replica in Vertex AI's words."""
        if status.out_of_memory:
            failure = f"ran out of memory and exited with a non-zero status of {status.code}."
        else:
            reason = "StartError" if status.code == START_ERROR else "Error"
            failure = (
                f"exited with a non-zero status of {status.code}. Termination reason: {reason}."
            )
        quoted = "".join(f"\n{line}" for line in self._last_errors[replica.task])
        job_id = self._workload.job_id
        link = (
            "https://console.cloud.google.com/logs/viewer"
            f"?project={self._workload.project_number}&resource=ml_job%2Fjob_id%2F{job_id}"
            f"&advancedFilter=resource.type%3D%22ml_job%22%0Aresource.labels.job_id%3D%22{job_id}%22"
        )
        return (
            f"The replica {replica.name} {failure} {quoted}\n\n"
            f"To find out more about why your job exited please check the logs: {link}"
        )

    def _log(self, text: str) -> None:
        self._write("service", "INFO", text)

    def _write(self, name: str, severity: Severity, text: str) -> None:
        self._logs.add(self._workload.job_id, name, severity, text, trial=self._workload.trial)
