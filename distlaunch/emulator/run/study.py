"""The study of a tuning job: what its trials try, and what came of them."""

from __future__ import annotations

import json
import math
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Parameters = dict[str, "float | int | str"]

_GRID_POINTS = 10  # of a parameter that is any number between two others


class Study:
    """Suggests what trials try.

    A grid goes through all combinations, the last parameter changing first. Everything else is
    drawn at random, Google's default (Bayesian optimisation) too: the emulator learns nothing from
    the trials before.

    Parameters
    ----------
    spec
        A StudySpec in Google's JSON names.
    seed
        What the random numbers begin with.
    """

    def __init__(self, spec: Mapping[str, Any], seed: str) -> None:
        self._parameters: Sequence[Mapping[str, Any]] = spec.get("parameters", [])
        self._random = random.Random(seed)  # noqa: S311 - no secret
        is_grid = spec.get("algorithm") == "GRID_SEARCH"
        self._grid = _combinations(self._parameters) if is_grid else None

    def suggest(self) -> Parameters | None:
        """Return the next trial's values by parameter; None when the grid is used up."""
        if self._grid is not None:
            return next(self._grid, None)
        return dict(self._drawn(self._parameters))

    def _drawn(
        self, parameters: Iterable[Mapping[str, Any]]
    ) -> Iterator[tuple[str, float | int | str]]:
        for each in parameters:
            value = self._draw(each)
            yield each["parameterId"], value
            yield from self._drawn(_children(each, value))

    def _draw(self, parameter: Mapping[str, Any]) -> float | int | str:
        choices = _choices(parameter)
        if choices is not None:
            return self._random.choice(choices)
        if "integerValueSpec" in parameter:
            whole = _bounds(parameter["integerValueSpec"])
            return round(_scaled(self._random.random(), *whole, parameter.get("scaleType")))
        bounds = _bounds(parameter["doubleValueSpec"])
        return _scaled(self._random.random(), *bounds, parameter.get("scaleType"))


def final_measurement(
    spec: Mapping[str, Any], lines: str
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return all measurements of a trial, and the one that counts, in Google's JSON.

    Parameters
    ----------
    spec
        The StudySpec: its metrics, and whether the last measurement counts or the best.
    lines
        What cloudml-hypertune wrote: JSON objects with the metric's value under its name, and
        ``global_step``.
    """
    goals = {each["metricId"]: each.get("goal", "MAXIMIZE") for each in spec.get("metrics", [])}
    by_step: dict[str, dict[str, float]] = {}
    for told in _objects(lines):
        step = str(int(float(told.get("global_step") or 0)))
        by_step.setdefault(step, {}).update(
            {name: float(told[name]) for name in goals if name in told}
        )
    measurements = [
        {
            "stepCount": step,
            "metrics": [{"metricId": name, "value": value} for name, value in metrics.items()],
        }
        for step, metrics in by_step.items()
        if metrics
    ]
    if not measurements:
        return [], None
    if spec.get("measurementSelectionType") == "BEST_MEASUREMENT":
        metric, goal = next(iter(goals.items()))
        sign = -1.0 if goal == "MINIMIZE" else 1.0
        return measurements, max(
            measurements, key=lambda each: sign * _value(each, metric, -sign * math.inf)
        )
    return measurements, measurements[-1]


def _value(measurement: Mapping[str, Any], metric: str, missing: float) -> float:
    found = [each["value"] for each in measurement["metrics"] if each["metricId"] == metric]
    return found[0] if found else missing


def _objects(lines: str) -> Iterator[dict[str, Any]]:
    for line in lines.splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            continue  # half a line: the program was killed as it wrote
        if isinstance(told, dict):
            yield told


def _combinations(parameters: Sequence[Mapping[str, Any]]) -> Iterator[Parameters]:
    if not parameters:
        yield {}
        return
    first, *others = parameters
    for way in _ways(first):
        for rest in _combinations(others):
            yield way | rest


def _ways(parameter: Mapping[str, Any]) -> Iterator[Parameters]:
    """Go through the values of a parameter, each with all that its children may be."""
    for value in _points(parameter):
        for below in _combinations(_children(parameter, value)):
            yield {parameter["parameterId"]: value, **below}


def _points(parameter: Mapping[str, Any]) -> Sequence[float | int | str]:
    choices = _choices(parameter)
    if choices is not None:
        return choices
    if "integerValueSpec" in parameter:
        first, end = _bounds(parameter["integerValueSpec"])
        return range(int(first), int(end) + 1)
    low, high = _bounds(parameter["doubleValueSpec"])
    last = _GRID_POINTS - 1
    return [
        _scaled(number / last, low, high, parameter.get("scaleType"))
        for number in range(_GRID_POINTS)
    ]


def _choices(parameter: Mapping[str, Any]) -> Sequence[float | str] | None:
    for kind in ("categoricalValueSpec", "discreteValueSpec"):
        if kind in parameter:
            values: Sequence[float | str] = parameter[kind]["values"]
            return values
    return None


def _children(parameter: Mapping[str, Any], value: float | str) -> Sequence[Mapping[str, Any]]:
    """Return the parameters that are there only for some values of this one, and for this value."""
    return [
        conditional["parameterSpec"]
        for conditional in parameter.get("conditionalParameterSpecs", [])
        if value in _condition(conditional)
    ]


def _condition(conditional: Mapping[str, Any]) -> Sequence[object]:
    if "parentIntValues" in conditional:
        return [int(value) for value in conditional["parentIntValues"]["values"]]
    for kind in ("parentDiscreteValues", "parentCategoricalValues"):
        if kind in conditional:
            values: Sequence[object] = conditional[kind]["values"]
            return values
    return ()


def _bounds(spec: Mapping[str, Any]) -> tuple[float, float]:
    return float(spec.get("minValue", 0)), float(spec.get("maxValue", 0))


def _scaled(share: float, low: float, high: float, scale: str | None) -> float:
    """Return the point at a share (0 to 1) of the way between two values, as the scale goes."""
    if scale == "UNIT_LOG_SCALE":
        return low * math.pow(high / low, share)
    if scale == "UNIT_REVERSE_LOG_SCALE":
        return high + low - low * math.pow(high / low, 1 - share)
    return low + (high - low) * share
