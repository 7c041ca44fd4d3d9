"""A trial of a search: its parameters and its result, in Google's JSON and in that of `tune`."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.job.search_space import argument
from distlaunch.metric_file import read_records
from distlaunch.timestamps import seconds_between

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from distlaunch.job.model import Tuning

    Value = float | int | str

SUCCEEDED, INFEASIBLE, ACTIVE = "SUCCEEDED", "INFEASIBLE", "ACTIVE"  # Google's states
STOPPED = "STOPPED"  # of a local trial that was interrupted and can be resumed


@dataclass(frozen=True, slots=True)
class Study:
    """What the trials of a search have in common."""

    metric: str
    goal: str  # maximize or minimize
    parameters: tuple[str, ...]
    trials: int  # how many are wanted

    @classmethod
    def of_tuning(cls, tuning: Tuning) -> Study:
        """Return the study of the job file's section."""
        return cls(tuning.metric, tuning.goal, tuple(tuning.parameters), tuning.trials)

    @classmethod
    def of_job(cls, job: Mapping[str, Any]) -> Study:
        """Return the study of a HyperparameterTuningJob, with the first of its metrics."""
        spec = job.get("studySpec") or {}
        metric = (spec.get("metrics") or [{}])[0]
        return cls(
            metric=str(metric.get("metricId") or ""),
            goal=str(metric.get("goal") or "").lower(),
            parameters=tuple(each["parameterId"] for each in spec.get("parameters") or ()),
            trials=int(job.get("maxTrialCount") or 0),
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial; `metric` is the last measurement of the search's metric, at the training `step`."""

    id: int
    parameters: Mapping[str, Value]
    state: str  # Google's word, such as ACTIVE
    metric: float | None = None
    step: int | None = None
    seconds: float | None = None  # None if it has not started
    reason: str = ""  # why it is INFEASIBLE

    @property
    def has_ended(self) -> bool:
        """Whether the trial has a final result."""
        return self.state in (SUCCEEDED, INFEASIBLE)

    @property
    def options(self) -> list[str]:
        """The parameters as a program's arguments, such as ``--learning-rate=0.01``."""
        return [f"--{name}={argument(value)}" for name, value in self.parameters.items()]


def sort_trials(trials: Iterable[Trial], study: Study) -> list[Trial]:
    """Return trials, the best first and those without a result last."""
    sign = -1 if study.goal == "maximize" else 1

    def key(trial: Trial) -> tuple[bool, bool, float, int]:
        is_infeasible = trial.state == INFEASIBLE
        metric = 0.0 if trial.metric is None else sign * trial.metric
        return is_infeasible, trial.metric is None, metric, trial.id

    return sorted(trials, key=key)


def best_trial(trials: Iterable[Trial], study: Study) -> Trial | None:
    """Return the trial with the best result, None if none has succeeded."""
    succeeded = (trial for trial in trials if trial.state == SUCCEEDED and trial.metric is not None)
    return next(iter(sort_trials(succeeded, study)), None)


def read_metric(lines: str, name: str) -> tuple[float | None, int | None, set[str]]:
    """Read what cloudml-hypertune writes: a JSON object a line.

    Returns
    -------
    tuple
        The last value of a metric and its step, None if it was not reported, and the names of all
        metrics.
    """
    value, step, names = None, None, set[str]()
    for record in read_records(lines):
        names |= record.keys() - {"checkpoint_path", "global_step", "timestamp", "trial"}
        if name in record:
            with suppress(OverflowError, TypeError, ValueError):  # not a number
                value, step = float(record[name]), int(float(record.get("global_step") or 0))
    return value, step, names


def read_cloud_trials(job: Mapping[str, Any], metric: str, now: str) -> list[Trial]:
    """Return the trials of a HyperparameterTuningJob; `now` is a timestamp."""
    return [_read_trial(trial, metric, now) for trial in job.get("trials") or ()]


def _read_trial(trial: Mapping[str, Any], metric: str, now: str) -> Trial:
    measurement = trial.get("finalMeasurement") or (trial.get("measurements") or [{}])[-1]
    values = {each.get("metricId"): each.get("value") for each in measurement.get("metrics") or ()}
    value = values.get(metric)
    number = math.nan if value is None else float(value)
    result = number if math.isfinite(number) else None
    return Trial(
        id=int(trial.get("id") or 0),
        parameters={
            each["parameterId"]: each.get("value", "") for each in trial.get("parameters") or ()
        },
        state=str(trial.get("state") or "REQUESTED"),
        metric=result,
        step=None if result is None else int(measurement.get("stepCount") or 0),
        seconds=seconds_between(trial.get("startTime"), trial.get("endTime") or now),
        reason=" ".join(str(trial.get("infeasibleReason") or "").split()),
    )
