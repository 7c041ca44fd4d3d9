"""The parameters of the next trial: by a grid, at random, or by Optuna from the trials before it.

A trial is a point: for a range the fraction of its scale from 0 to 1, for a list the index of the
value. Points depend on the number of the trial and on earlier trials only, so that a resumed search
continues as if it had not been interrupted.
"""

from __future__ import annotations

import itertools
import math
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch.errors import DistlaunchError
from distlaunch.job.model import RangeParameter
from distlaunch.job.vertex.tuning import interpolate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.job.model import ChoiceParameter, Tuning
    from distlaunch.job.trial import Value

    Parameter = RangeParameter | ChoiceParameter
    Point = Mapping[str, float | int]

_FEWEST_RANDOM_TRIALS = 10  # before Optuna's sampler uses their results; its default


class Observation(NamedTuple):
    """An earlier trial; None if it has no result yet, NaN if it failed."""

    point: Point
    metric: float | None


def check_search(tuning: Tuning) -> None:
    """Raise DistlaunchError if the search cannot be run here."""
    for name, parameter in tuning.parameters.items():
        where = f"distlaunch.yaml: tuning.parameters.{name}"
        if not isinstance(parameter, RangeParameter):
            continue
        if parameter.scale != "linear" and parameter.minimum <= 0:
            raise DistlaunchError(
                f"{where}: a {parameter.scale} scale needs a min above 0, got "
                f"{parameter.minimum:g}; write one, or scale: linear"
            )
        if tuning.algorithm == "grid" and not parameter.is_integer:
            raise DistlaunchError(
                f"{where}: a grid has no range of the type double; write values: [0.1, 0.01], or "
                "algorithm: random"
            )
    if tuning.algorithm == "bayesian":
        _optuna()


def next_point(tuning: Tuning, number: int, earlier: Sequence[Observation]) -> Point | None:
    """Return the point of the trial with a number, from 1; None where a grid has no more points.

    Bayesian search learns from the `earlier` trials.
    """
    if tuning.algorithm == "grid":
        indices = itertools.product(*(range(_size(each)) for each in tuning.parameters.values()))
        point = next(itertools.islice(indices, number - 1, None), None)
        return None if point is None else dict(zip(tuning.parameters, point, strict=True))
    if tuning.algorithm == "random":
        # By the number of the trial, so that a resumed search draws the same.
        draw = random.Random(number)  # noqa: S311 - not a secret
        return {
            name: draw.random() if isinstance(each, RangeParameter) else draw.randrange(_size(each))
            for name, each in tuning.parameters.items()
        }
    return _bayesian_point(tuning, number, earlier)


def values_at(tuning: Tuning, point: Point) -> dict[str, Value]:
    """Return the values of the parameters at a point."""
    return {name: _value(each, tuning, point[name]) for name, each in tuning.parameters.items()}


def _value(parameter: Parameter, tuning: Tuning, coordinate: float) -> Value:
    if not isinstance(parameter, RangeParameter):
        return parameter.values[int(coordinate)]
    low, high = parameter.minimum, parameter.maximum
    if not parameter.is_integer:
        value = float(f"{interpolate(low, high, parameter.scale, coordinate):.6g}")
        return min(max(value, low), high)
    if tuning.algorithm == "grid":
        return int(low) + int(coordinate)
    # Half a unit more at both ends, or these would be drawn half as often as the others.
    value = interpolate(low - 0.5, high + 0.5, parameter.scale, coordinate)
    return int(min(max(round(value), low), high))


def _size(parameter: Parameter) -> int:
    """Return the number of values of a list or of a range of integers."""
    if isinstance(parameter, RangeParameter):
        return int(parameter.maximum - parameter.minimum) + 1
    return len(parameter.values)


def _bayesian_point(tuning: Tuning, number: int, earlier: Sequence[Observation]) -> Point:
    """Return what Optuna's sampler suggests after the earlier trials."""
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = {name: _distribution(each) for name, each in tuning.parameters.items()}
    sampler = optuna.samplers.TPESampler(
        n_startup_trials=min(_FEWEST_RANDOM_TRIALS, max(tuning.trials // 2, 1)),
        constant_liar=tuning.parallel_trials > 1,
        seed=number,
    )
    study = optuna.create_study(direction=tuning.goal, sampler=sampler)
    states = optuna.trial.TrialState
    for observation in earlier:
        metric = observation.metric
        state = states.RUNNING if metric is None else states.COMPLETE
        if metric is not None and math.isnan(metric):
            state, metric = states.FAIL, None
        study.add_trial(
            optuna.trial.create_trial(
                state=state, value=metric, params=dict(observation.point), distributions=space
            )
        )
    point: Point = study.ask(space).params
    return point


def _distribution(parameter: Parameter) -> object:
    """Return the coordinates of a parameter as Optuna's distribution."""
    optuna = _optuna()
    if isinstance(parameter, RangeParameter):
        return optuna.distributions.FloatDistribution(0.0, 1.0)
    indices = range(_size(parameter))
    if parameter.is_numeric:
        return optuna.distributions.IntDistribution(0, indices[-1])
    return optuna.distributions.CategoricalDistribution(indices)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise DistlaunchError(
            "optuna is not installed here, which bayesian search needs; run pip install "
            "'optuna>=4,<6', or --set tuning.algorithm=random"
        ) from None
    return optuna
