"""The trials of a tuning job, run for real."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.run.group import Outcome
from distlaunch.emulator.run.study import Study, final_measurement
from distlaunch.emulator.run.work import trial_of, work

if TYPE_CHECKING:
    from distlaunch.emulator.run.life import Life
    from distlaunch.emulator.run.study import Parameters

_FAILURES = 3  # that end the job where maxFailedTrialCount is 0: 'Vertex AI decides'


class Tuning:
    """Runs the trials of one tuning job, some at once, until there are enough.

    Parameters
    ----------
    life
        The job's life.
    job
        A HyperparameterTuningJob in Google's JSON names.
    """

    def __init__(self, life: Life, job: dict[str, Any]) -> None:
        self._life = life
        self._spec = job["trialJobSpec"]
        self._study_spec = job.get("studySpec", {})
        self._study = Study(self._study_spec, life.name)
        self._whole = work(life.name, self._spec)
        self._most = int(job["maxTrialCount"])
        self._at_once = int(job["parallelTrialCount"])
        self._failures_allowed = int(job.get("maxFailedTrialCount", 0))
        self._lock = threading.Lock()
        self._trials: list[dict[str, Any]] = []
        self._has_started = False
        self._error = ""

    def run(self) -> Outcome:
        """Run them all; fails when too many of them have failed."""
        runners = min(self._at_once, self._most)
        with ThreadPoolExecutor(runners, thread_name_prefix=self._life.name) as pool:
            for done in [pool.submit(self._run_trials) for _ in range(runners)]:
                done.result()
        if self._life.stop.reason:
            return Outcome("stopped")
        return Outcome("failed", self._error) if self._error else Outcome("succeeded")

    def _run_trials(self) -> None:
        while (requested := self._request()) is not None:
            trial, parameters = requested
            own = trial_of(self._whole, trial["id"], parameters)
            outcome = self._life.group(own, self._spec).run(partial(self._activate, trial))
            self._finish(trial, outcome)

    def _request(self) -> tuple[dict[str, Any], Parameters] | None:
        with self._lock:
            if self._life.stop.reason or self._error or len(self._trials) == self._most:
                return None
            parameters = self._study.suggest()
            if parameters is None:
                return None
            trial = {
                "id": str(len(self._trials) + 1),
                "state": "REQUESTED",
                "parameters": [
                    {"parameterId": name, "value": value} for name, value in parameters.items()
                ],
            }
            self._trials.append(trial)
            self._tell()
            return trial, parameters

    def _activate(self, trial: dict[str, Any]) -> None:
        with self._lock:
            trial.update(state="ACTIVE", startTime=self._life.now())
            self._tell()
            if not self._has_started:
                self._has_started = True
                self._life.has_started()

    def _finish(self, trial: dict[str, Any], outcome: Outcome) -> None:
        measurements, final = final_measurement(self._study_spec, outcome.measurements)
        with self._lock:
            trial["endTime"] = self._life.now()
            if measurements:
                trial["measurements"] = measurements
            if outcome.kind == "succeeded" and final:
                trial.update(state="SUCCEEDED", finalMeasurement=final)
            else:
                trial.update(state="INFEASIBLE", infeasibleReason=_reason(outcome))
                self._count_failures(outcome)
            self._tell()

    def _count_failures(self, outcome: Outcome) -> None:
        failed = [each for each in self._trials if each["state"] == "INFEASIBLE"]
        succeeded = any(each["state"] == "SUCCEEDED" for each in self._trials)
        if self._failures_allowed:
            is_too_many = len(failed) >= self._failures_allowed
        else:
            is_too_many = not succeeded and len(failed) >= min(_FAILURES, self._most)
        if is_too_many and outcome.kind != "stopped":
            self._error = f"Too many failed trials ({len(failed)}). {_reason(outcome)}"

    def _tell(self) -> None:
        self._life.update(trials=self._trials)


def _reason(outcome: Outcome) -> str:
    if outcome.kind == "succeeded":
        return "The trial reported no measurement of the study's metric."
    return outcome.error or f"The trial was {outcome.kind}."
