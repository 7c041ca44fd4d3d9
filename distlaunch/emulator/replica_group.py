"""The replicas of one job, from their start until the job succeeds, fails or is stopped."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Literal, Protocol

from distlaunch.emulator.supervisor import START_ERROR
from distlaunch.errors import DistlaunchError
from distlaunch.task_files import Lines

if TYPE_CHECKING:
    from distlaunch.emulator.job_spec import Replica, Workload
    from distlaunch.emulator.logs import LogStore
    from distlaunch.job.tasks import Task

# Vertex AI's, as documented: see `decide`.
_REPLICA_RESTARTS = 5
_JOB_RESTARTS = 3
_TRANSIENT = (6, 134, 11, 139)
_QUOTED_LINES = 20  # last lines on stderr of a failed replica that its error quotes
_POLL = 0.05  # seconds between two looks at the cancellation token

Severity = Literal["INFO", "ERROR"]
WriteLine = Callable[[Severity, str], None]
"""Receives a line that a replica wrote to stdout (INFO) or stderr (ERROR), without its end."""


class CancellationToken(threading.Event):
    """Is set to cancel a job, or to end it because the emulator shuts down."""

    is_shutdown = False


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a replica ended; the code is 128+n for signal n."""

    code: int
    out_of_memory: bool = False


OnExit = Callable[[ExitStatus], None]


class RunningReplica(Protocol):
    """A replica that was started."""

    def stop(self, *, kill: bool) -> None:
        """Send SIGTERM or SIGKILL, unless it has ended; return at once."""


class JobEnvironment(Protocol):
    """The addresses and folders of one run of a job, in which its replicas are started."""

    def start(self, replica: Replica, write: WriteLine, on_exit: OnExit) -> RunningReplica:
        """Start a replica, for the first time or again at the same address.

        `on_exit` is called once, from any thread and after the last line. A replica that cannot be
        started ends with `START_ERROR`, and the reason is a line.
        """

    def metrics(self) -> str:
        """Return what the primary replica wrote to CLOUD_ML_HP_METRIC_FILE, JSON lines."""

    def close(self) -> None:
        """Kill what still runs and remove all that was created for the job."""


class Backend(Protocol):
    """Runs replicas as containers or as processes."""

    def prepare(self, workload: Workload, token: CancellationToken) -> JobEnvironment:
        """Prepare images, network or ports, and folders.

        DistlaunchError is raised if the job cannot be run, with the message of the job's error.
        """

    def close(self) -> None:
        """Remove what is left of any job; the emulator shuts down."""


class LineWriter:
    """Splits what a replica writes to a stream into lines."""

    def __init__(self, severity: Severity, write: WriteLine) -> None:
        self._severity = severity
        self._write = write
        self._lines = Lines()

    def feed(self, data: bytes) -> None:
        self._write_all(self._lines.feed(data))

    def close(self) -> None:
        """Write the last line if it has no end."""
        self._write_all(self._lines.close())

    def _write_all(self, lines: bytes) -> None:
        for line in lines.decode("utf-8", "replace").split("\n")[:-1]:
            self._write(self._severity, line)


class RestartPolicy:
    """Decides on the restarts of one job, and counts them.

    The rules are those of
    https://cloud.google.com/vertex-ai/docs/training/understanding-training-service. Which exit
    codes mean that a replica was lost is not documented; here they are those above 128.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._replica_restarts: Counter[Task] = Counter()
        self._job_restarts = 0

    def decide(self, task: Task, status: ExitStatus) -> Literal["replica", "job"] | None:
        """Return what to restart after a replica failed, None for nothing."""
        is_transient = status.code in _TRANSIENT
        is_permanent = status.out_of_memory or (status.code <= START_ERROR and not is_transient)
        if is_permanent or not self._workload.retries:
            return None
        is_first = self._replica_restarts[task] < _REPLICA_RESTARTS
        if is_first and not is_transient and not self._workload.restarts_whole_job:
            self._replica_restarts[task] += 1
            return "replica"
        if self._job_restarts == _JOB_RESTARTS:
            return None
        self._job_restarts += 1
        self._replica_restarts.clear()
        return "job"


@dataclass(frozen=True, slots=True)
class RunResult:
    """How the run of a group ended."""

    kind: Literal["succeeded", "failed", "stopped", "timed out", "stockout", "crashed"]
    error: str = ""  # what failed, in Vertex AI's words
    metrics: str = ""  # what the program reported, JSON lines


@dataclass
class ReplicaGroup:
    """Runs a workload once, with the restarts that it needs."""

    workload: Workload
    backend: Backend
    logs: LogStore
    token: CancellationToken
    grace: float  # seconds between SIGTERM and SIGKILL for replicas that are stopped

    def __post_init__(self) -> None:
        self._restarts = RestartPolicy(self.workload)
        self._running: dict[Task, RunningReplica] = {}
        self._last_errors: dict[Task, deque[str]] = {}
        self._exits: SimpleQueue[tuple[Replica, ExitStatus]] = SimpleQueue()

    def run(self, on_start: Callable[[], None]) -> RunResult:
        """Run it to its end and leave nothing; call `on_start` when all replicas are started."""
        try:
            environment = self.backend.prepare(self.workload, self.token)
            with contextlib.closing(environment):
                self._log_skipped_replicas()
                self._start_all(environment)
                on_start()
                result = self._supervise(environment)
                self._log("Tearing down training program.")
                self._stop_all()
                self._log("Finished tearing down training program.")
                return RunResult(result.kind, result.error, environment.metrics())
        except DistlaunchError as problem:
            return RunResult("stopped" if self.token.is_set() else "failed", str(problem))

    def _supervise(self, environment: JobEnvironment) -> RunResult:
        deadline = time.monotonic() + self.workload.timeout
        while not self.token.is_set():
            if time.monotonic() > deadline:
                return RunResult("timed out")
            try:
                replica, status = self._exits.get(timeout=_POLL)
            except Empty:
                continue
            del self._running[replica.task]
            if status.code and not self._restart(environment, replica, status):
                return RunResult("failed", self._error(replica, status))
            if status.code == 0 and replica is self.workload.replicas[0]:
                return RunResult("succeeded")
        return RunResult("stopped")

    def _restart(self, environment: JobEnvironment, replica: Replica, status: ExitStatus) -> bool:
        """Restart the replica or the job; return whether that is allowed."""
        restarted = self._restarts.decide(replica.task, status)
        if restarted == "replica":
            self._log(f"Restarting {replica.name}, which ended with {status.code}.")
            self._start(environment, replica)
        elif restarted == "job":
            self._log(f"Restarting the job: {replica.name} ended with {status.code}.")
            self._stop_all()
            self._start_all(environment)
        return restarted is not None

    def _log_skipped_replicas(self) -> None:
        count = sum(not replica.is_started for replica in self.workload.replicas)
        if count:
            replicas = f"{count} replica{'s are' if count > 1 else ' is'}"
            reason = "as the emulator does not have Google's image"
            self._log(f"Reduction Server: its {replicas} not started, {reason}.")

    def _start_all(self, environment: JobEnvironment) -> None:
        for replica in self.workload.replicas:
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
        """Send SIGTERM, and SIGKILL to what still runs after a grace period or at a shutdown."""
        if not self.token.is_shutdown:
            self._signal_all(kill=False)
            self._await_all(self.grace)
        self._signal_all(kill=True)
        self._await_all(None)

    def _signal_all(self, *, kill: bool) -> None:
        for running in self._running.values():
            running.stop(kill=kill)

    def _await_all(self, seconds: float | None) -> None:
        """Wait until nothing runs, for so long at most."""
        until = time.monotonic() + (seconds or 0)
        with contextlib.suppress(Empty):
            while self._running:
                left = None if seconds is None else max(until - time.monotonic(), 0)
                replica, _ = self._exits.get(timeout=left)
                del self._running[replica.task]

    def _error(self, replica: Replica, status: ExitStatus) -> str:
        """Describe the failure of a replica in Vertex AI's words."""
        reason = "StartError" if status.code == START_ERROR else "Error"
        start = "ran out of memory and " if status.out_of_memory else ""
        end = "" if status.out_of_memory else f" Termination reason: {reason}."
        quoted = "".join(f"\n{line}" for line in self._last_errors[replica.task])
        return (
            f"The replica {replica.name} {start}exited with a non-zero status of {status.code}."
            f"{end} {quoted}\n\nTo find out more about why your job exited please check the logs: "
            "https://console.cloud.google.com/logs/viewer"
            f"?project={self.workload.project_number}"
            f"&resource=ml_job%2Fjob_id%2F{self.workload.job_id}"
        )

    def _log(self, text: str) -> None:
        self._write("service", "INFO", text)

    def _write(self, name: str, severity: Severity, text: str) -> None:
        self.logs.add(self.workload.job_id, name, severity, text, trial=self.workload.trial)
