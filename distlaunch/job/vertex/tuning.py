"""A tuning, in Google's words and ours.

Vertex AI appends each trial's values to the program's args itself, as ``--learning-rate=0.1``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from distlaunch.job.model import Choice, Scale, Span, Tuning

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCALES: dict[str, Scale] = {
    "SCALE_TYPE_UNSPECIFIED": "linear",
    "UNIT_LINEAR_SCALE": "linear",
    "UNIT_LOG_SCALE": "log",
    "UNIT_REVERSE_LOG_SCALE": "reverse_log",
}
_SCALE_NAMES = {scale: name for name, scale in _SCALES.items()}
_ALGORITHMS: dict[str, Literal["bayesian", "grid", "random"]] = {
    "ALGORITHM_UNSPECIFIED": "bayesian",
    "GRID_SEARCH": "grid",
    "RANDOM_SEARCH": "random",
}
_ALGORITHM_NAMES = {algorithm: name for name, algorithm in _ALGORITHMS.items()}
_GOALS: dict[str, Literal["maximize", "minimize"]] = {
    "MAXIMIZE": "maximize",
    "MINIMIZE": "minimize",
}
_KINDS = ("doubleValueSpec", "integerValueSpec", "categoricalValueSpec", "discreteValueSpec")


def read_tuning(body: Mapping[str, Any]) -> Tuning | None:
    """Return the tuning of a HyperparameterTuningJob, None where `Tuning` cannot say it.

    That is so with several metrics, or with parameters that hang on others or are given defaults.
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
    """Put a tuning into a HyperparameterTuningJob; what it does not say there stays as it is."""
    study = body.setdefault("studySpec", {})
    metric = {"metricId": tuning.metric, "goal": tuning.goal.upper()}
    study["metrics"] = [metric]
    study["parameters"] = [_parameter(name, each) for name, each in tuning.parameters.items()]
    if _ALGORITHMS[study.get("algorithm", "ALGORITHM_UNSPECIFIED")] != tuning.algorithm:
        study["algorithm"] = _ALGORITHM_NAMES[tuning.algorithm]
    body["maxTrialCount"] = tuning.trials
    body["parallelTrialCount"] = tuning.parallel_trials


def _read_parameter(spec: Mapping[str, Any]) -> tuple[str, Span | Choice] | None:
    kind = next((kind for kind in _KINDS if kind in spec), None)
    if kind is None or spec.get("conditionalParameterSpecs") or "defaultValue" in spec[kind]:
        return None
    scale = _SCALES[spec.get("scaleType", "SCALE_TYPE_UNSPECIFIED")]
    read = _read_choice if kind in _KINDS[2:] else _read_span
    value = read(kind, spec[kind], scale)
    return (spec.get("parameterId", ""), value) if value else None


def _read_span(kind: str, spec: Mapping[str, Any], scale: Scale) -> Span | None:
    ends = spec.get("minValue", 0), spec.get("maxValue", 0)
    whole = kind == "integerValueSpec"
    if any(isinstance(end, str) for end in ends):  # an infinity, or no number at all
        return None
    minimum, maximum = map(float, ends)
    is_exact = (minimum, maximum) == ends
    return Span(minimum, maximum, whole=whole, scale=scale) if is_exact else None


def _read_choice(kind: str, spec: Mapping[str, Any], scale: Scale) -> Choice | None:
    values = spec.get("values", [])
    if kind == "discreteValueSpec" and values and all(isinstance(value, float) for value in values):
        return Choice(tuple(map(_written, values)), numeric=True, scale=scale)
    if kind == "categoricalValueSpec" and values and scale == "linear":
        return Choice(tuple(values))
    return None


def _parameter(name: str, value: Span | Choice) -> dict[str, Any]:
    spec = {"parameterId": name} | (_choice(value) if isinstance(value, Choice) else _span(value))
    if not (isinstance(value, Choice) and not value.numeric):
        spec["scaleType"] = _SCALE_NAMES[value.scale]
    return spec


def _span(span: Span) -> dict[str, Any]:
    kind, number = ("integerValueSpec", int) if span.whole else ("doubleValueSpec", float)
    return {kind: {"minValue": number(span.minimum), "maxValue": number(span.maximum)}}


def _choice(choice: Choice) -> dict[str, Any]:
    if not choice.numeric:
        return {"categoricalValueSpec": {"values": list(choice.values)}}
    return {"discreteValueSpec": {"values": sorted({float(value) for value in choice.values})}}


def _written(number: float) -> str:
    """Return a number as it is shortest to write."""
    return repr(number).removesuffix(".0")
