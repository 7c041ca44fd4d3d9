"""A Tuning ↔ the fields of a HyperparameterTuningJob, and the values of its parameters.

Vertex AI appends each trial's values to the program's args: ``--learning-rate=0.1``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from distlaunch.job.model import ChoiceParameter, RangeParameter, Scale, Tuning

if TYPE_CHECKING:
    from collections.abc import Mapping

SCALES: dict[str, Scale] = {
    "UNIT_LINEAR_SCALE": "linear",
    "UNIT_LOG_SCALE": "log",
    "UNIT_REVERSE_LOG_SCALE": "reverse_log",
}
_ALGORITHMS: dict[str, Literal["bayesian", "grid", "random"]] = {
    "ALGORITHM_UNSPECIFIED": "bayesian",
    "GRID_SEARCH": "grid",
    "RANDOM_SEARCH": "random",
}
_GOALS: dict[str, Literal["maximize", "minimize"]] = {
    "MAXIMIZE": "maximize",
    "MINIMIZE": "minimize",
}
_RANGES = ("doubleValueSpec", "integerValueSpec")
_CHOICES = ("categoricalValueSpec", "discreteValueSpec")


def read_tuning(body: Mapping[str, Any]) -> Tuning | None:
    """Return the tuning of a HyperparameterTuningJob, None where `Tuning` cannot express it.

    `Tuning` has one metric, and no conditional parameters or default values.
    """
    study = body.get("studySpec", {})
    metrics = study.get("metrics", [])
    specs = study.get("parameters", [])
    parameters = dict(filter(None, map(_read_parameter, specs)))
    if len(metrics) != 1 or not specs or len(parameters) != len(specs):
        return None
    goal = _GOALS.get(metrics[0].get("goal", ""))
    if goal is None or not metrics[0].get("metricId"):
        return None
    return Tuning(
        metric=metrics[0]["metricId"],
        goal=goal,
        parameters=parameters,
        trials=body.get("maxTrialCount", 0),
        parallel_trials=body.get("parallelTrialCount", 0),
        algorithm=_ALGORITHMS[study.get("algorithm", "ALGORITHM_UNSPECIFIED")],
    )


def write_tuning(tuning: Tuning, body: dict[str, Any]) -> None:
    """Set the fields of a tuning in a HyperparameterTuningJob."""
    study = body.setdefault("studySpec", {})
    study["metrics"] = [{"metricId": tuning.metric, "goal": tuning.goal.upper()}]
    study["parameters"] = [_write_parameter(*item) for item in tuning.parameters.items()]
    if _ALGORITHMS[study.get("algorithm", "ALGORITHM_UNSPECIFIED")] != tuning.algorithm:
        study["algorithm"] = _name(_ALGORITHMS, tuning.algorithm)
    body["maxTrialCount"] = tuning.trials
    body["parallelTrialCount"] = tuning.parallel_trials


def interpolate(low: float, high: float, scale: Scale, fraction: float) -> float:
    """Return the number at a fraction (0 to 1) of a range, as Vertex AI's scales define it."""
    if scale == "log":
        return low * math.pow(high / low, fraction)
    if scale == "reverse_log":
        return high + low - low * math.pow(high / low, 1 - fraction)
    return low + (high - low) * fraction


def _read_parameter(
    spec: Mapping[str, Any],
) -> tuple[str, RangeParameter | ChoiceParameter] | None:
    kind = next((kind for kind in (*_RANGES, *_CHOICES) if kind in spec), None)
    if kind is None or spec.get("conditionalParameterSpecs") or "defaultValue" in spec[kind]:
        return None
    scale = SCALES.get(spec.get("scaleType", ""), "linear")
    read = _read_choice if kind in _CHOICES else _read_range
    value = read(kind, spec[kind], scale)
    return (spec.get("parameterId", ""), value) if value else None


def _read_range(kind: str, spec: Mapping[str, Any], scale: Scale) -> RangeParameter | None:
    ends = spec.get("minValue", 0), spec.get("maxValue", 0)
    if any(isinstance(end, str) for end in ends):  # an infinity or NaN
        return None
    minimum, maximum = map(float, ends)
    if (minimum, maximum) != ends:  # integers that a float cannot hold
        return None
    return RangeParameter(minimum, maximum, is_integer=kind == "integerValueSpec", scale=scale)


def _read_choice(kind: str, spec: Mapping[str, Any], scale: Scale) -> ChoiceParameter | None:
    values = spec.get("values", [])
    if kind == "discreteValueSpec" and values and all(isinstance(value, float) for value in values):
        texts = tuple(repr(number).removesuffix(".0") for number in values)
        return ChoiceParameter(texts, is_numeric=True, scale=scale)
    if kind == "categoricalValueSpec" and values and scale == "linear":
        return ChoiceParameter(tuple(values))
    return None


def _write_parameter(name: str, value: RangeParameter | ChoiceParameter) -> dict[str, Any]:
    if isinstance(value, ChoiceParameter) and not value.is_numeric:
        return {"parameterId": name, "categoricalValueSpec": {"values": list(value.values)}}
    if isinstance(value, ChoiceParameter):
        numbers = sorted({float(number) for number in value.values})
        spec: dict[str, Any] = {"discreteValueSpec": {"values": numbers}}
    elif value.is_integer:
        spec = {"integerValueSpec": _ends(int(value.minimum), int(value.maximum))}
    else:
        spec = {"doubleValueSpec": _ends(float(value.minimum), float(value.maximum))}
    return {"parameterId": name, **spec, "scaleType": _name(SCALES, value.scale)}


def _ends(minimum: float, maximum: float) -> dict[str, float]:
    return {"minValue": minimum, "maxValue": maximum}


def _name(names: Mapping[str, str], value: str) -> str:
    return next(name for name, each in names.items() if each == value)
