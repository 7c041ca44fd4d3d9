"""A search for parameters and its trials, here or in the cloud."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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


def argument(value: float | str) -> str:
    """Return a value as it is in an argument; 64.0 is 64, for options that take integers."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
