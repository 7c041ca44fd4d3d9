"""Runs jobs: their states over time, and how they end."""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.job_spec import read_workload
from distlaunch.emulator.replica_group import CancellationToken, ReplicaGroup, RunResult
from distlaunch.emulator.store import ENDED
from distlaunch.emulator.trials import TrialRunner
from distlaunch.errors import UsageError, did_you_mean
from distlaunch.job.tf_config import EXPECTED_GPUS
from distlaunch.job.vertex import fields
from distlaunch.job.vertex.view import pools_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.emulator.job_spec import Workload
    from distlaunch.emulator.logs import LogStore
    from distlaunch.emulator.replica_group import Backend
    from distlaunch.emulator.store import Store

# google.rpc.Code
_CANCELLED, _INVALID_ARGUMENT, _DEADLINE_EXCEEDED = 1, 3, 4
_RESOURCE_EXHAUSTED, _INTERNAL = 8, 13

_NO_MACHINES = "Resources are insufficient in region: {}. Please try a different region."
_TIMED_OUT = "The job ran longer than its scheduling.timeout and was cancelled."
# By the kind of a result: final state, code and default text of the error, last line of the log.
_ENDS = {
    "succeeded": ("SUCCEEDED", 0, "", "Job completed successfully."),
    "failed": ("FAILED", _INVALID_ARGUMENT, "", "Job failed."),
    "crashed": ("FAILED", _INTERNAL, "Internal error occurred.", "Job failed."),
    "stopped": ("CANCELLED", _CANCELLED, "CANCELED", "Job cancelled."),
    "timed out": ("CANCELLED", _DEADLINE_EXCEEDED, _TIMED_OUT, "Job cancelled."),
    "stockout": ("FAILED", _RESOURCE_EXHAUSTED, "", "Job failed."),
}
_NO_GPUS = f"The emulator has no GPUs: {EXPECTED_GPUS} is 0 in all replicas, which use CPUs."
_SLOW_STATES = 5.0  # seconds
_SECONDS = re.compile(r"\d{1,9}(\.\d+)?", re.ASCII)
_PLACE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", re.ASCII)  # a region or a machine type
_EXPECTED = {  # the faults
    "slow-states": "expected NAME or NAME:NUMBER",
    "stockout": "expected NAME, NAME:REGION or NAME:MACHINE",
    "no-start": "expected NAME, NAME:REGION or NAME:MACHINE",
}
_SHUTDOWN_TIMEOUT = 30.0  # seconds for all jobs to end when the emulator shuts down

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timings:
    """How long the phases of a job take, in seconds."""

    states: float = 0.1  # in which it is QUEUED, and then PENDING
    error: float = 0.3  # until the error of a job that ended appears; on Vertex AI about a minute
    grace: float = 5.0  # between SIGTERM and SIGKILL for replicas that are stopped
    # Regions and machine types whose jobs end FAILED for want of machines, and with which they stay
    # PENDING; '' is all.
    stockouts: frozenset[str] = frozenset()
    stalls: frozenset[str] = frozenset()


def read_faults(text: str) -> Timings:
    """Return the timings that `--faults` lists; UsageError is raised for what is not a fault."""
    seconds: dict[str, float] = {}
    places: dict[str, set[str]] = {"stockout": set(), "no-start": set()}
    for part in filter(None, map(str.strip, text.split(","))):
        name, colon, value = part.partition(":")
        if name == "slow-states" and (not colon or _SECONDS.fullmatch(value)):
            seconds["states"] = float(value or _SLOW_STATES)
        elif name in places and (not value or _PLACE.fullmatch(value)):
            places[name].add(value)
        else:
            reason = _EXPECTED.get(name) or f"no such fault{did_you_mean(name, _EXPECTED)}"
            raise UsageError(f"--faults: {part!r}: {reason} (see 'distlaunch emulator --help')")
    stockouts, stalls = map(frozenset, places.values())
    return Timings(**seconds, stockouts=stockouts, stalls=stalls)


@dataclass
class JobRunner:
    """Runs the jobs of a store, each in a thread of its own."""

    store: Store
    backend: Backend
    logs: LogStore
    timings: Timings = Timings()
    _runs: dict[str, JobRun] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Run a job of the store, by its resource name; return at once."""
        run = self._runs[name] = JobRun(name, self)
        run.thread.start()

    def cancel(self, name: str) -> None:
        """Move a job to CANCELLING and later to CANCELLED; ignore one that has ended."""
        self._runs[name].cancel()

    def close(self) -> None:
        """End all jobs and leave nothing running; the emulator shuts down."""
        runs = list(self._runs.values())
        for run in runs:
            run.token.is_shutdown = True
            run.token.set()
        for run in runs:
            run.thread.join(_SHUTDOWN_TIMEOUT)
        self.backend.close()


class JobRun:
    """The run of one job, from QUEUED to its final state."""

    def __init__(self, name: str, runner: JobRunner) -> None:
        self.token = CancellationToken()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._name = name
        self._runner = runner
        self._timings = runner.timings
        self._lock = threading.Lock()
        self._has_ended = False

    def cancel(self) -> None:
        """Be CANCELLING until all replicas have ended."""
        with self._lock:
            if not self._has_ended and not self.token.is_set():
                self._runner.store.update(self._name, state="JOB_STATE_CANCELLING")
                self.token.set()

    def _run(self) -> None:
        try:
            self._end(self._run_job(self._runner.store.get(self._name)))
        except Exception as problem:  # noqa: BLE001 - other jobs continue
            _log.error("%s: %r", self._name, problem, exc_info=_log.isEnabledFor(logging.DEBUG))
            self._end(RunResult("crashed"))

    def _run_job(self, job: dict[str, Any]) -> RunResult:
        self._write("INFO", "Waiting for job to be provisioned.")
        self.token.wait(self._timings.states)
        if self._change_state("PENDING"):
            self._write("INFO", "Waiting for training program to start.")
            self.token.wait(self._timings.states)
        region = self._name.split("/")[3]
        machines = {pool.machine for pool in pools_of(fields.job_spec(job)["workerPoolSpecs"])}
        places = {"", region, *machines}
        if places & self._timings.stalls:
            self.token.wait()
        if self.token.is_set():
            return RunResult("stopped")
        if places & self._timings.stockouts:
            return RunResult("stockout", _NO_MACHINES.format(region))
        workload = read_workload(self._name, job.get("trialJobSpec") or job["jobSpec"])
        if workload.expects_gpus:
            self._write("WARNING", _NO_GPUS)
        if "trialJobSpec" not in job:
            return self._run_group(workload, self._become_running)
        trials = TrialRunner(job, workload, self._runner.store, self.token, self._run_group)
        return trials.run(self._become_running)

    def _run_group(self, workload: Workload, on_start: Callable[[], None]) -> RunResult:
        backend, logs, grace = self._runner.backend, self._runner.logs, self._timings.grace
        return ReplicaGroup(workload, backend, logs, self.token, grace).run(on_start)

    def _become_running(self) -> None:
        if self._change_state("RUNNING", startTime=self._runner.store.now()):
            self._write("INFO", "Job is running.")

    def _end(self, result: RunResult) -> None:
        """Move to the final state, and set the error some time later."""
        if self.token.is_shutdown:
            return
        state, code, default_error, last_line = _ENDS[result.kind]
        error = default_error or result.error
        if error and code != _CANCELLED:
            self._write("ERROR", error)
        self._write("INFO", last_line)
        if self._change_state(state, endTime=self._runner.store.now()) and code:
            time.sleep(self._timings.error)
            self._runner.store.update(self._name, error={"code": code, "message": error})

    def _change_state(self, name: str, **changes: object) -> bool:
        """Move to a state unless the job has ended or is being cancelled; return whether so."""
        state = f"JOB_STATE_{name}"
        with self._lock:
            if self._has_ended or (self.token.is_set() and state not in ENDED):
                return False
            self._has_ended = state in ENDED
            self._runner.store.update(self._name, state=state, **changes)
            return True

    def _write(self, severity: str, text: str) -> None:
        self._runner.logs.add(self._name.rpartition("/")[2], "service", severity, text)
