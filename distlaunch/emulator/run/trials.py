"""Runs the trials of a tuning job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.run.job_spec import Workload, trial_workload
from distlaunch.emulator.run.replica_group import RunResult
from distlaunch.emulator.run.study import read_measurements, suggest_parameters

if TYPE_CHECKING:
    from distlaunch.emulator.run.backend import CancellationToken
    from distlaunch.emulator.run.study import Parameters
    from distlaunch.emulator.store import Store

_DEFAULT_FAILURES = 3  # that end the job where maxFailedTrialCount is 0: 'Vertex AI decides'

RunGroup = Callable[[Workload, Callable[[], None]], RunResult]
"""Runs a workload to its end, and calls its second argument when all replicas are started."""


class TrialRunner:
    """Runs the trials of one tuning job, some at once, until there are enough."""

    def __init__(
        self,
        job: dict[str, Any],
        workload: Workload,
        store: Store,
        token: CancellationToken,
        run_group: RunGroup,
    ) -> None:
        self._job = job
        self._workload = workload
        self._store = store
        self._token = token
        self._run_group = run_group
        self._suggestions = suggest_parameters(job["studySpec"], seed=job["name"])
        self._max_trials = int(job["maxTrialCount"])
        self._lock = threading.Lock()
        self._trials: list[dict[str, Any]] = []
        self._error = ""

    def run(self, on_start: Callable[[], None]) -> RunResult:
        """Run all trials, until too many have failed; call `on_start` when a trial has started."""
        count = min(int(self._job["parallelTrialCount"]), self._max_trials)
        with ThreadPoolExecutor(count, thread_name_prefix=self._job["name"]) as pool:
            for done in [pool.submit(self._run_trials, on_start) for _ in range(count)]:
                done.result()
        if self._token.is_cancelled:
            return RunResult("stopped")
        return RunResult("failed", self._error) if self._error else RunResult("succeeded")

    def _run_trials(self, on_start: Callable[[], None]) -> None:
        while (requested := self._request()) is not None:
            trial, parameters = requested

            def activate(trial: dict[str, Any] = trial) -> None:
                self._update(trial, state="ACTIVE", startTime=self._store.now())
                on_start()

            workload = trial_workload(self._workload, trial["id"], parameters)
            self._finish(trial, self._run_group(workload, activate))

    def _request(self) -> tuple[dict[str, Any], Parameters] | None:
        """Return the next trial and its parameters, None where there is to be no other."""
        with self._lock:
            if self._token.is_cancelled or self._error or len(self._trials) == self._max_trials:
                return None
            parameters = next(self._suggestions, None)
            if parameters is None:
                return None
            values = [{"parameterId": name, "value": value} for name, value in parameters.items()]
            trial_id = str(len(self._trials) + 1)
            trial = {"id": trial_id, "state": "REQUESTED", "parameters": values}
            self._trials.append(trial)
            self._publish()
            return trial, parameters

    def _finish(self, trial: dict[str, Any], result: RunResult) -> None:
        measurements, final = read_measurements(self._job["studySpec"], result.metrics)
        changes: dict[str, Any] = {"endTime": self._store.now()}
        if measurements:
            changes["measurements"] = measurements
        if result.kind == "succeeded" and final:
            self._update(trial, **changes, state="SUCCEEDED", finalMeasurement=final)
            return
        reason = _failure(result)
        self._update(trial, **changes, state="INFEASIBLE", infeasibleReason=reason)
        if result.kind != "stopped":
            self._check_failures(reason)

    def _check_failures(self, reason: str) -> None:
        """Set the job's error if too many trials have failed."""
        with self._lock:
            states = [trial["state"] for trial in self._trials]
        failed = states.count("INFEASIBLE")
        allowed = int(self._job.get("maxFailedTrialCount", 0))
        if not allowed and "SUCCEEDED" not in states:
            allowed = min(_DEFAULT_FAILURES, self._max_trials)
        if allowed and failed >= allowed:
            self._error = f"Too many failed trials ({failed}). {reason}"

    def _update(self, trial: dict[str, Any], **changes: object) -> None:
        with self._lock:
            trial.update(changes)
            self._publish()

    def _publish(self) -> None:
        self._store.update(self._job["name"], trials=self._trials)


def _failure(result: RunResult) -> str:
    if result.kind == "succeeded":
        return "The trial reported no measurement of the study's metric."
    return result.error or f"The trial was {result.kind}."
