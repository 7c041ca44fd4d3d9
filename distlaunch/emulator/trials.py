"""The trials of a tuning job: their parameters, runs and measurements."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.job_spec import Workload, trial_workload
from distlaunch.emulator.replica_group import RunResult
from distlaunch.job.vertex.tuning import SCALES, interpolate
from distlaunch.task_files import read_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distlaunch.emulator.replica_group import CancellationToken
    from distlaunch.emulator.store import Store

_DEFAULT_FAILURES = 3  # that end the job where maxFailedTrialCount is 0: 'Vertex AI decides'

RunGroup = Callable[[Workload, Callable[[], None]], RunResult]
"""Runs a workload to its end, and calls its second argument when all replicas are started."""

Parameters = dict[str, "float | int | str"]
_GRID_POINTS = 10  # values of a floating-point parameter in a grid


@dataclass
class TrialRunner:
    """Runs the trials of one tuning job, some at once, until there are enough."""

    job: dict[str, Any]
    workload: Workload
    store: Store
    token: CancellationToken
    run_group: RunGroup

    def __post_init__(self) -> None:
        self._suggestions = suggest_parameters(self.job["studySpec"], seed=self.job["name"])
        self._max_trials = int(self.job["maxTrialCount"])
        self._lock = threading.Lock()
        self._trials: list[dict[str, Any]] = []
        self._error = ""

    def run(self, on_start: Callable[[], None]) -> RunResult:
        """Run all trials, until too many have failed; call `on_start` when a trial has started."""
        count = min(int(self.job["parallelTrialCount"]), self._max_trials)
        with ThreadPoolExecutor(count, thread_name_prefix=self.job["name"]) as pool:
            for done in [pool.submit(self._run_trials, on_start) for _ in range(count)]:
                done.result()
        if self.token.is_set():
            return RunResult("stopped")
        return RunResult("failed", self._error) if self._error else RunResult("succeeded")

    def _run_trials(self, on_start: Callable[[], None]) -> None:
        while (trial := self._next_trial()) is not None:

            def activate(trial: dict[str, Any] = trial) -> None:
                self._update(trial, state="ACTIVE", startTime=self.store.now())
                on_start()

            workload = trial_workload(self.workload, trial)
            self._finish(trial, self.run_group(workload, activate))

    def _next_trial(self) -> dict[str, Any] | None:
        """Return the next trial, None where there is to be no other."""
        with self._lock:
            if self.token.is_set() or self._error or len(self._trials) == self._max_trials:
                return None
            parameters = next(self._suggestions, None)
            if parameters is None:
                return None
            values = [{"parameterId": name, "value": value} for name, value in parameters.items()]
            trial_id = str(len(self._trials) + 1)
            self._trials.append({"id": trial_id, "state": "REQUESTED", "parameters": values})
            self.store.update(self.job["name"], trials=self._trials)
            return self._trials[-1]

    def _finish(self, trial: dict[str, Any], result: RunResult) -> None:
        measurements, final = read_measurements(self.job["studySpec"], result.metrics)
        changes: dict[str, Any] = {"endTime": self.store.now()}
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
        allowed = int(self.job.get("maxFailedTrialCount", 0))
        if not allowed and "SUCCEEDED" not in states:
            allowed = min(_DEFAULT_FAILURES, self._max_trials)
        if allowed and failed >= allowed:
            self._error = f"Too many failed trials ({failed}). {reason}"

    def _update(self, trial: dict[str, Any], **changes: object) -> None:
        with self._lock:
            trial.update(changes)
            self.store.update(self.job["name"], trials=self._trials)


def _failure(result: RunResult) -> str:
    if result.kind == "succeeded":
        return "The trial reported no measurement of the study's metric."
    return result.error or f"The trial was {result.kind}."


def suggest_parameters(spec: Mapping[str, Any], seed: str) -> Iterator[Parameters]:
    """Give the parameters of each trial of a StudySpec.

    A grid goes through all combinations. All other algorithms draw at random, also Google's default
    (Bayesian optimisation): the emulator learns nothing from earlier trials.
    """
    parameters = {parameter["parameterId"]: parameter for parameter in spec["parameters"]}
    if spec.get("algorithm") == "GRID_SEARCH":
        for values in itertools.product(*map(_grid_values, parameters.values())):
            yield dict(zip(parameters, values, strict=True))
        return
    generator = random.Random(seed)  # noqa: S311 - not a secret
    while True:
        yield {name: _draw(parameter, generator.random()) for name, parameter in parameters.items()}


def read_measurements(
    spec: Mapping[str, Any], lines: str
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return all measurements of a trial and its final one, in Google's JSON.

    cloudml-hypertune writes lines of JSON objects: metrics by name, and ``global_step``.
    """
    goals = {metric["metricId"]: metric.get("goal") for metric in spec.get("metrics", [])}
    by_step: dict[int, dict[str, float]] = {}
    for step, metrics in read_metrics(lines):
        numbers = ((name, metrics.get(name)) for name in goals)
        values = {name: number for name, number in numbers if number is not None}
        if values:
            by_step.setdefault(step, {}).update(values)
    if not by_step:
        return [], None
    final = list(by_step)[-1]
    if spec.get("measurementSelectionType") == "BEST_MEASUREMENT":
        metric, goal = next(iter(goals.items()))
        best = min if goal == "MINIMIZE" else max
        steps = [step for step, values in by_step.items() if metric in values]
        final = best(steps, key=lambda step: by_step[step][metric], default=final)
    measurements = {step: _measurement(step, values) for step, values in by_step.items()}
    return list(measurements.values()), measurements[final]


def _measurement(step: int, values: Mapping[str, float]) -> dict[str, Any]:
    metrics = [{"metricId": name, "value": value} for name, value in values.items()]
    return {"stepCount": str(step), "metrics": metrics}


def _grid_values(parameter: Mapping[str, Any]) -> list[float | int | str]:
    for kind in ("categoricalValueSpec", "discreteValueSpec"):
        if kind in parameter:
            return list(parameter[kind]["values"])
    if "integerValueSpec" in parameter:
        bounds = parameter["integerValueSpec"]
        return list(range(int(bounds.get("minValue", 0)), int(bounds.get("maxValue", 0)) + 1))
    last = _GRID_POINTS - 1
    return [_interpolate(parameter, number / last) for number in range(_GRID_POINTS)]


def _draw(parameter: Mapping[str, Any], fraction: float) -> float | int | str:
    if "doubleValueSpec" in parameter:
        return _interpolate(parameter, fraction)
    if "integerValueSpec" in parameter:
        return round(_interpolate(parameter, fraction))
    choices = _grid_values(parameter)
    return choices[int(fraction * len(choices))]


def _interpolate(parameter: Mapping[str, Any], fraction: float) -> float:
    """Return the value at a fraction (0 to 1) of a parameter's range, on its scale."""
    bounds = parameter.get("integerValueSpec") or parameter["doubleValueSpec"]
    low, high = float(bounds.get("minValue", 0)), float(bounds.get("maxValue", 0))
    return interpolate(low, high, SCALES.get(parameter.get("scaleType", ""), "linear"), fraction)
