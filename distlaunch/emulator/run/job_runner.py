"""Runs jobs: their states over time, and how they end."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.run.backend import CancellationToken
from distlaunch.emulator.run.job_spec import expects_gpus, read_workload
from distlaunch.emulator.run.replica_group import ReplicaGroup, RunResult
from distlaunch.emulator.run.trials import TrialRunner
from distlaunch.emulator.store import ENDED, UnknownJob
from distlaunch.job.tf_config import EXPECTED_GPUS

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.emulator.logs import Logs
    from distlaunch.emulator.run.backend import Backend
    from distlaunch.emulator.run.job_spec import Workload
    from distlaunch.emulator.store import Store

# google.rpc.Code
_CANCELLED, _INVALID_ARGUMENT, _DEADLINE_EXCEEDED, _INTERNAL = 1, 3, 4, 13

_FINAL_MESSAGES = {
    "JOB_STATE_SUCCEEDED": "Job completed successfully.",
    "JOB_STATE_FAILED": "Job failed.",
    "JOB_STATE_CANCELLED": "Job cancelled.",
}
_NO_GPUS = f"The emulator has no GPUs: {EXPECTED_GPUS} is 0 in all replicas, which use CPUs."
_SHUTDOWN_TIMEOUT = 30.0  # seconds for all jobs to end when the emulator shuts down

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timings:
    """How long a job stays in each state, in seconds.

    Parameters
    ----------
    queued, pending
        Time in these states.
    error
        Between the end of a job and the appearance of its error; Vertex AI takes about a minute.
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


class JobRunner:
    """Runs the jobs of a store, each in a thread of its own."""

    def __init__(
        self, store: Store, backend: Backend, logs: Logs, *, timings: Timings | None = None
    ) -> None:
        self._store = store
        self._backend = backend
        self._logs = logs
        self._timings = timings or Timings()
        self._lock = threading.Lock()
        self._runs: dict[str, tuple[JobRun, threading.Thread]] = {}

    def start(self, name: str) -> None:
        """Run a job of the store, by its resource name; return at once."""
        run = JobRun(name, self._store, self._backend, self._logs, self._timings)
        thread = threading.Thread(target=self._run, args=(run,), name=name, daemon=True)
        with self._lock:
            self._runs[name] = run, thread
        thread.start()

    def cancel(self, name: str) -> None:
        """Move a job to CANCELLING and later to CANCELLED; ignore one that has ended."""
        with self._lock:
            running = self._runs.get(name)
        if running:
            running[0].cancel()

    def close(self) -> None:
        """End all jobs and leave nothing running; the emulator shuts down."""
        with self._lock:
            runs = list(self._runs.values())
        for run, _ in runs:
            run.token.cancel(shutdown=True)
        for _, thread in runs:
            thread.join(_SHUTDOWN_TIMEOUT)
        self._backend.close()

    def _run(self, run: JobRun) -> None:
        try:
            run.run()
        except UnknownJob:
            pass  # deleted before it started
        except Exception as problem:  # noqa: BLE001 - other jobs continue
            _log.error("%s: %r", run.name, problem, exc_info=_log.isEnabledFor(logging.DEBUG))
            run.fail_internally()
        finally:
            with self._lock:
                self._runs.pop(run.name, None)


class JobRun:
    """The run of one job, from QUEUED to its final state."""

    def __init__(
        self, name: str, store: Store, backend: Backend, logs: Logs, timings: Timings
    ) -> None:
        self.name = name
        self.token = CancellationToken()
        self._store = store
        self._backend = backend
        self._logs = logs
        self._timings = timings
        self._lock = threading.Lock()
        self._has_ended = False

    def run(self) -> None:
        """Move from state to state to the end."""
        job = self._store.get(self.name)
        self._write("INFO", "Waiting for job to be provisioned.")
        self.token.wait(self._timings.queued)
        if self._timings.expires and not self.token.is_cancelled:
            why = "The job expired: it could not get its resources within maxWaitDuration."
            self._finish("JOB_STATE_EXPIRED", _DEADLINE_EXCEEDED, why)
        elif self._change_state("JOB_STATE_PENDING"):
            self._write("INFO", "Waiting for training program to start.")
            is_cancelled = self.token.wait(self._timings.pending)
            self._end(RunResult("stopped") if is_cancelled else self._run_replicas(job))
        else:
            self._end(RunResult("stopped"))

    def cancel(self) -> None:
        """Be CANCELLING until all replicas have ended."""
        with self._lock:
            if not self._has_ended and not self.token.is_cancelled:
                self._store.update(self.name, state="JOB_STATE_CANCELLING")
                self.token.cancel()

    def fail_internally(self) -> None:
        """End because of an error in the emulator."""
        self._finish("JOB_STATE_FAILED", _INTERNAL, "Internal error occurred.")

    def _run_replicas(self, job: dict[str, Any]) -> RunResult:
        spec = job.get("trialJobSpec") or job["jobSpec"]
        if expects_gpus(spec):
            self._write("WARNING", _NO_GPUS)
        workload = read_workload(self.name, spec)
        if "trialJobSpec" not in job:
            return self._run_group(workload, self._become_running)
        trials = TrialRunner(job, workload, self._store, self.token, self._run_group)
        return trials.run(self._become_running)

    def _run_group(self, workload: Workload, on_start: Callable[[], None]) -> RunResult:
        group = ReplicaGroup(
            workload, self._backend, self._logs, self.token, grace=self._timings.grace
        )
        return group.run(on_start)

    def _become_running(self) -> None:
        if self._change_state("JOB_STATE_RUNNING", startTime=self._store.now()):
            self._write("INFO", "Job is running.")

    def _end(self, result: RunResult) -> None:
        if self.token.is_shutdown:
            return
        match result.kind:
            case "succeeded":
                self._finish("JOB_STATE_SUCCEEDED")
            case "failed":
                self._finish("JOB_STATE_FAILED", _INVALID_ARGUMENT, result.error)
            case "stopped":
                self._finish("JOB_STATE_CANCELLED", _CANCELLED, "CANCELED")
            case "timed out":
                why = "The job ran longer than its scheduling.timeout and was cancelled."
                self._finish("JOB_STATE_CANCELLED", _DEADLINE_EXCEEDED, why)

    def _finish(self, state: str, code: int = 0, error: str = "") -> None:
        """Move to a final state, and set the error some time later."""
        if code not in (0, _CANCELLED):
            self._write("ERROR", error)
        if state in _FINAL_MESSAGES:
            self._write("INFO", _FINAL_MESSAGES[state])
        if self._change_state(state, endTime=self._store.now()) and code:
            time.sleep(self._timings.error)
            self._store.update(self.name, error={"code": code, "message": error})

    def _change_state(self, state: str, **changes: object) -> bool:
        """Move to a state unless the job has ended or is being cancelled; return whether so."""
        with self._lock:
            if self._has_ended or (self.token.is_cancelled and state not in ENDED):
                return False
            self._has_ended = state in ENDED
            self._store.update(self.name, state=state, **changes)
            return True

    def _write(self, severity: str, text: str) -> None:
        self._logs.add(self.name.rpartition("/")[2], "service", severity, text)
