"""The study of a tuning job: the parameters of its trials, and their measurements."""

from __future__ import annotations

import itertools
import json
import math
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Parameters = dict[str, "float | int | str"]

_GRID_POINTS = 10  # values of a floating-point parameter in a grid


def suggest_parameters(spec: Mapping[str, Any], seed: str) -> Iterator[Parameters]:
    """Give the parameters of each trial of a StudySpec.

    A grid goes through all combinations. All other algorithms draw at random, also Google's default
    (Bayesian optimisation): the emulator learns nothing from earlier trials.
    """
    parameters: Sequence[Mapping[str, Any]] = spec.get("parameters", [])
    names = [parameter["parameterId"] for parameter in parameters]
    if spec.get("algorithm") == "GRID_SEARCH":
        for values in itertools.product(*map(_grid_values, parameters)):
            yield dict(zip(names, values, strict=True))
        return
    generator = random.Random(seed)  # noqa: S311 - not a secret
    while True:
        yield {
            parameter["parameterId"]: _draw(parameter, generator.random())
            for parameter in parameters
        }


def read_measurements(
    spec: Mapping[str, Any], lines: str
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return all measurements of a trial and its final one, in Google's JSON.

    cloudml-hypertune writes lines of JSON objects: metrics by name, and ``global_step``.
    """
    goals = {metric["metricId"]: metric.get("goal") for metric in spec.get("metrics", [])}
    by_step: dict[int, dict[str, float]] = {}
    for record in _read_records(lines):
        values = {name: float(record[name]) for name in goals if name in record}
        if values:
            step = int(float(record.get("global_step") or 0))
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


def _read_records(lines: str) -> Iterator[dict[str, Any]]:
    for line in lines.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # the program was killed while it wrote the line
        if isinstance(record, dict):
            yield record


def _draw(parameter: Mapping[str, Any], fraction: float) -> float | int | str:
    choices = _choices(parameter)
    if choices is not None:
        return choices[int(fraction * len(choices))]
    value = _interpolate(parameter, fraction)
    return round(value) if "integerValueSpec" in parameter else value


def _grid_values(parameter: Mapping[str, Any]) -> Sequence[float | int | str]:
    choices = _choices(parameter)
    if choices is not None:
        return choices
    if "integerValueSpec" in parameter:
        bounds = parameter["integerValueSpec"]
        return range(int(bounds.get("minValue", 0)), int(bounds.get("maxValue", 0)) + 1)
    last = _GRID_POINTS - 1
    return [_interpolate(parameter, number / last) for number in range(_GRID_POINTS)]


def _choices(parameter: Mapping[str, Any]) -> Sequence[float | str] | None:
    for kind in ("categoricalValueSpec", "discreteValueSpec"):
        if kind in parameter:
            values: Sequence[float | str] = parameter[kind]["values"]
            return values
    return None


def _interpolate(parameter: Mapping[str, Any], fraction: float) -> float:
    """Return the value at a fraction (0 to 1) of a parameter's range, on its scale."""
    bounds = parameter.get("integerValueSpec") or parameter["doubleValueSpec"]
    low, high = float(bounds.get("minValue", 0)), float(bounds.get("maxValue", 0))
    match parameter.get("scaleType"):
        case "UNIT_LOG_SCALE":
            return low * math.pow(high / low, fraction)
        case "UNIT_REVERSE_LOG_SCALE":
            return high + low - low * math.pow(high / low, 1 - fraction)
    return low + (high - low) * fraction
