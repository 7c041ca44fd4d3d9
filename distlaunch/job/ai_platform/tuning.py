"""AI Platform's ``hyperparameters`` ↔ a Tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlaunch.job.ai_platform.models import HyperparameterSpec, ParameterSpec
from distlaunch.job.model import ChoiceParameter, RangeParameter, Tuning
from distlaunch.job.vertex.tuning import ALGORITHM_NAMES, ALGORITHMS, SCALE_NAMES, SCALES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.ai_platform.report import TranslationReport
    from distlaunch.job.model import Scale

DEFAULT_METRIC = "training/hptuning/metric"

_EARLY_STOPPING = {
    "medianAutomatedStoppingSpec",
    "decayCurveStoppingSpec",
    "convexAutomatedStoppingSpec",
}
OTHER_FIELDS = {"maxFailedTrialCount", *(f"studySpec.{name}" for name in _EARLY_STOPPING)}
"""The fields of a HyperparameterTuningJob that AI Platform has, and a Tuning does not."""


def to_tuning(spec: HyperparameterSpec, report: TranslationReport) -> Tuning:
    """Return the Tuning of ``hyperparameters``."""
    parameters = {}
    if not spec.params:
        report.error("hyperparameters.params", "expected one or more")
    for index, param in enumerate(spec.params or ()):
        path = f"hyperparameters.params.{index}"
        if not param.parameter_name:
            report.error(f"{path}.parameterName", "is missing")
        elif param.parameter_name in parameters:
            report.error(f"{path}.parameterName", f"duplicate name {param.parameter_name}")
        else:
            parameters[param.parameter_name] = _to_parameter(param, path, report)
    _warn_about_differences(spec, report)
    return Tuning(
        metric=spec.hyperparameter_metric_tag or DEFAULT_METRIC,
        goal="minimize" if spec.goal == "MINIMIZE" else "maximize",
        parameters=parameters,
        trials=spec.max_trials or 1,
        parallel_trials=spec.max_parallel_trials or 1,
        algorithm=ALGORITHMS.get(spec.algorithm or "", "bayesian"),
    )


def other_fields(spec: HyperparameterSpec) -> dict[str, Any]:
    """Return the values of `OTHER_FIELDS` for ``hyperparameters``."""
    fields: dict[str, Any] = {}
    if spec.max_failed_trials:
        fields["maxFailedTrialCount"] = spec.max_failed_trials
    if spec.enable_trial_early_stopping:
        fields["studySpec"] = {"medianAutomatedStoppingSpec": {}}
    return fields


def from_tuning(tuning: Tuning, other: Mapping[str, Any]) -> HyperparameterSpec:
    """Return ``hyperparameters`` of a Tuning and the other fields of its job."""
    has_early_stopping = _EARLY_STOPPING & other.get("studySpec", {}).keys()
    return HyperparameterSpec(
        goal="MINIMIZE" if tuning.goal == "minimize" else "MAXIMIZE",
        hyperparameter_metric_tag=tuning.metric,
        max_trials=tuning.trials,
        max_parallel_trials=tuning.parallel_trials,
        max_failed_trials=other.get("maxFailedTrialCount"),
        algorithm=None if tuning.algorithm == "bayesian" else ALGORITHM_NAMES[tuning.algorithm],
        enable_trial_early_stopping=True if has_early_stopping else None,
        params=tuple(_from_parameter(name, each) for name, each in tuning.parameters.items()),
    )


def _warn_about_differences(spec: HyperparameterSpec, report: TranslationReport) -> None:
    metric = "hyperparameters.hyperparameterMetricTag"
    if not spec.hyperparameter_metric_tag:
        report.warn(metric, f"not set; using {DEFAULT_METRIC}, AI Platform's default")
    report.warn(
        metric,
        "the program must report it by cloudml-hypertune (or to the file named by "
        "CLOUD_ML_HP_METRIC_FILE), as Vertex AI does not read TensorFlow's summaries",
    )
    if spec.enable_trial_early_stopping:
        report.warn(
            "hyperparameters.enableTrialEarlyStopping",
            "is now studySpec.medianAutomatedStoppingSpec, as Vertex AI needs a named rule and AI "
            "Platform did not document its own; set another under vertex: in distlaunch.yaml",
        )
    if spec.resume_previous_job_id:
        report.warn(
            "hyperparameters.resumePreviousJobId",
            "ignored: the search starts from scratch, as AI Platform's searches no longer exist",
        )


def _to_parameter(
    param: ParameterSpec, path: str, report: TranslationReport
) -> RangeParameter | ChoiceParameter:
    if param.scale_type == "NONE" and param.type != "CATEGORICAL":
        report.warn(f"{path}.scaleType", "NONE is now UNIT_LINEAR_SCALE, which is equivalent")
    scale = SCALES.get(param.scale_type or "", "linear")
    if param.type == "CATEGORICAL":
        return ChoiceParameter(_values(param.categorical_values, "categorical", path, report))
    if param.type == "DISCRETE":
        numbers = _values(param.discrete_values, "discrete", path, report)
        return ChoiceParameter(tuple(map(str, numbers)), is_numeric=True, scale=scale)
    if param.type not in ("DOUBLE", "INTEGER"):
        expected = "expected DOUBLE, INTEGER, CATEGORICAL or DISCRETE"
        report.error(f"{path}.type", expected if param.type else f"is missing; {expected}")
    return _to_range(param, scale, path, report)


def _to_range(
    param: ParameterSpec, scale: Scale, path: str, report: TranslationReport
) -> RangeParameter:
    is_integer = param.type == "INTEGER"
    ends = {"minValue": param.min_value, "maxValue": param.max_value}
    for name, end in ends.items():
        if param.type in ("DOUBLE", "INTEGER") and end is None:
            report.error(f"{path}.{name}", f"is missing, and type {param.type} needs it")
        if is_integer and end is not None and end != int(end):
            report.error(f"{path}.{name}", f"expected a whole number for type INTEGER, got {end}")
    low, high = param.min_value or 0, param.max_value or 0
    if None not in ends.values() and low > high:
        report.error(f"{path}.maxValue", f"expected minValue, {low}, or more, got {high}")
    return RangeParameter(low, high, is_integer, scale)


def _values(
    values: tuple[Any, ...] | None, kind: str, path: str, report: TranslationReport
) -> tuple[Any, ...]:
    if not values:
        report.error(f"{path}.{kind}Values", "expected one or more values")
    return values or ()


def _from_parameter(name: str, parameter: RangeParameter | ChoiceParameter) -> ParameterSpec:
    if isinstance(parameter, RangeParameter):
        return ParameterSpec(
            parameter_name=name,
            type="INTEGER" if parameter.is_integer else "DOUBLE",
            min_value=_shortest(parameter.minimum),
            max_value=_shortest(parameter.maximum),
            scale_type=SCALE_NAMES[parameter.scale],
        )
    if parameter.is_numeric:
        return ParameterSpec(
            parameter_name=name,
            type="DISCRETE",
            discrete_values=tuple(_shortest(float(value)) for value in parameter.values),
            scale_type=SCALE_NAMES[parameter.scale],
        )
    return ParameterSpec(
        parameter_name=name, type="CATEGORICAL", categorical_values=parameter.values
    )


def _shortest(number: float) -> float:
    """Return a whole number as int."""
    return int(number) if number == int(number) else number
