"""AI Platform's `hyperparameters` ↔ a search of today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from distlaunch.job.ai_platform.models import HyperparameterSpec, ParameterSpec
from distlaunch.job.model import Choice, Span, Tuning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.ai_platform.models import Algorithm, ScaleType
    from distlaunch.job.ai_platform.report import Ledger
    from distlaunch.job.model import Scale

DEFAULT_METRIC = "training/hptuning/metric"

_SCALES: dict[str | None, Scale] = {
    "UNIT_LOG_SCALE": "log",
    "UNIT_REVERSE_LOG_SCALE": "reverse_log",
}
_SCALE_NAMES: dict[Scale, ScaleType] = {
    "linear": "UNIT_LINEAR_SCALE",
    "log": "UNIT_LOG_SCALE",
    "reverse_log": "UNIT_REVERSE_LOG_SCALE",
}
_ALGORITHMS: dict[str | None, Literal["bayesian", "grid", "random"]] = {
    "GRID_SEARCH": "grid",
    "RANDOM_SEARCH": "random",
}
_STOPPING = {
    "medianAutomatedStoppingSpec",
    "decayCurveStoppingSpec",
    "convexAutomatedStoppingSpec",
}
# Fields of Google's HyperparameterTuningJob beside those of a Tuning that AI Platform has too.
WRITTEN_OF_TUNING = {"maxFailedTrialCount", *(f"studySpec.{name}" for name in _STOPPING)}
_ALGORITHM_NAMES: dict[str, Algorithm] = {"grid": "GRID_SEARCH", "random": "RANDOM_SEARCH"}


def to_tuning(spec: HyperparameterSpec, ledger: Ledger) -> Tuning:
    """Return the search that AI Platform was asked for.

    Parameters
    ----------
    spec
        What was asked for.
    ledger
        What it leaves out is noted there, and what it cannot be made from is refused there.
    """
    parameters = {}
    if not spec.params:
        ledger.refuse("hyperparameters.params", "expected one or more")
    for index, param in enumerate(spec.params or ()):
        where = f"hyperparameters.params.{index}"
        if not param.parameter_name:
            ledger.refuse(f"{where}.parameterName", "is missing")
        elif param.parameter_name in parameters:
            ledger.refuse(f"{where}.parameterName", f"{param.parameter_name} is there twice")
        else:
            parameters[param.parameter_name] = _parameter(param, where, ledger)
    _note_what_differs(spec, ledger)
    return Tuning(
        metric=spec.hyperparameter_metric_tag or DEFAULT_METRIC,
        goal="minimize" if spec.goal == "MINIMIZE" else "maximize",
        parameters=parameters,
        trials=spec.max_trials or 1,
        parallel_trials=spec.max_parallel_trials or 1,
        algorithm=_ALGORITHMS.get(spec.algorithm, "bayesian"),
    )


def other_fields(spec: HyperparameterSpec) -> dict[str, Any]:
    """Return the rest of the search, as fields of Google's HyperparameterTuningJob."""
    fields: dict[str, Any] = {}
    if spec.max_failed_trials:
        fields["maxFailedTrialCount"] = spec.max_failed_trials
    if spec.enable_trial_early_stopping:
        fields["studySpec"] = {"medianAutomatedStoppingSpec": {}}
    return fields


def from_tuning(tuning: Tuning, bag: Mapping[str, Any]) -> HyperparameterSpec:
    """Return a search as AI Platform was asked for one.

    Parameters
    ----------
    tuning
        The search.
    bag
        The other fields of Google's HyperparameterTuningJob.
    """
    study = bag.get("studySpec", {})
    return HyperparameterSpec(
        goal="MINIMIZE" if tuning.goal == "minimize" else "MAXIMIZE",
        hyperparameter_metric_tag=tuning.metric,
        max_trials=tuning.trials,
        max_parallel_trials=tuning.parallel_trials,
        max_failed_trials=bag.get("maxFailedTrialCount"),
        algorithm=_ALGORITHM_NAMES.get(tuning.algorithm),
        enable_trial_early_stopping=True if _STOPPING & study.keys() else None,
        params=tuple(_param(name, each) for name, each in tuning.parameters.items()),
    )


def _note_what_differs(spec: HyperparameterSpec, ledger: Ledger) -> None:
    where = "hyperparameters"
    if not spec.hyperparameter_metric_tag:
        what = f"is not set; taken for {DEFAULT_METRIC}, as AI Platform did"
        ledger.note(f"{where}.hyperparameterMetricTag", what)
    ledger.note(
        f"{where}.hyperparameterMetricTag",
        "the program has to report it by cloudml-hypertune (or to the file that "
        "CLOUD_ML_HP_METRIC_FILE names), as Vertex AI does not read TensorFlow's summaries",
    )
    if spec.enable_trial_early_stopping:
        ledger.note(
            f"{where}.enableTrialEarlyStopping",
            "is studySpec.medianAutomatedStoppingSpec, as Vertex AI wants the rule named and AI "
            "Platform did not tell its own; another goes under vertex: in distlaunch.yaml",
        )
    if spec.resume_previous_job_id:
        ledger.note(
            f"{where}.resumePreviousJobId",
            "dropped, and the search begins anew, as AI Platform's searches are gone with it",
        )


def _parameter(param: ParameterSpec, where: str, ledger: Ledger) -> Span | Choice:
    if param.type == "CATEGORICAL":
        values = _given(param.categorical_values, f"{where}.categoricalValues", ledger)
        return Choice(values)
    if param.type == "DISCRETE":
        numbers = _given(param.discrete_values, f"{where}.discreteValues", ledger)
        return Choice(tuple(map(str, numbers)), numeric=True, scale=_scale(param, where, ledger))
    if param.type not in ("DOUBLE", "INTEGER"):
        expected = "expected DOUBLE, INTEGER, CATEGORICAL or DISCRETE"
        ledger.refuse(f"{where}.type", expected if param.type else f"is missing; {expected}")
    return _span(param, where, ledger)


def _span(param: ParameterSpec, where: str, ledger: Ledger) -> Span:
    whole = param.type == "INTEGER"
    ends = {"minValue": param.min_value, "maxValue": param.max_value}
    for name, end in ends.items():
        if param.type in ("DOUBLE", "INTEGER") and end is None:
            ledger.refuse(f"{where}.{name}", f"is missing, and type {param.type} needs it")
        if whole and end is not None and end != int(end):
            ledger.refuse(f"{where}.{name}", f"expected a whole number for type INTEGER, got {end}")
    low, high = param.min_value or 0, param.max_value or 0
    if None not in ends.values() and low > high:
        ledger.refuse(f"{where}.maxValue", f"expected minValue, {low}, or more, got {high}")
    return Span(low, high, whole, _scale(param, where, ledger))


def _given(values: tuple[Any, ...] | None, name: str, ledger: Ledger) -> tuple[Any, ...]:
    if not values:
        ledger.refuse(name, "expected one or more values")
    return values or ()


def _scale(param: ParameterSpec, where: str, ledger: Ledger) -> Scale:
    if param.scale_type == "NONE":
        ledger.note(f"{where}.scaleType", "NONE is UNIT_LINEAR_SCALE, which orders values alike")
    return _SCALES.get(param.scale_type, "linear")


def _param(name: str, parameter: Span | Choice) -> ParameterSpec:
    if isinstance(parameter, Span):
        return ParameterSpec(
            parameter_name=name,
            type="INTEGER" if parameter.whole else "DOUBLE",
            min_value=_plain(parameter.minimum),
            max_value=_plain(parameter.maximum),
            scale_type=_SCALE_NAMES[parameter.scale],
        )
    if parameter.numeric:
        return ParameterSpec(
            parameter_name=name,
            type="DISCRETE",
            discrete_values=tuple(_plain(float(value)) for value in parameter.values),
            scale_type=_SCALE_NAMES[parameter.scale],
        )
    return ParameterSpec(
        parameter_name=name, type="CATEGORICAL", categorical_values=parameter.values
    )


def _plain(number: float) -> float:
    """Write a whole number without a point."""
    return int(number) if number == int(number) else number
