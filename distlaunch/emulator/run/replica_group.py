"""The replicas of one job, from their start until the job succeeds, fails or is stopped."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Literal

from distlaunch.emulator.run.backend import START_ERROR, CannotRun, ExitStatus
from distlaunch.emulator.run.restarts import Decision, RestartPolicy

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
    from distlaunch.emulator.run.job_spec import Replica, Workload
    from distlaunch.job.model import Task

_QUOTED_LINES = 20  # last lines on stderr of a failed replica that its error quotes
_POLL = 0.05  # seconds between two looks at the cancellation token


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
