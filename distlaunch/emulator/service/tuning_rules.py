"""What Vertex AI takes for a hyperparameter tuning job.

By https://cloud.google.com/vertex-ai/docs/reference/rest/v1/StudySpec.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.service.rules import common_problems, spec_problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distlaunch.emulator.service.rules import Problem

_LOG_SCALES = ("UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE")
_MOST_DISCRETE = 1_000


def tuning_job_problems(job: Any, location: str) -> Iterator[Problem]:
    """Tell what is wrong with a HyperparameterTuningJob."""
    yield from common_problems(job, location)
    yield from _count_problems(job)
    if not job.HasField("study_spec"):
        yield "study_spec", "Study spec is required."
    else:
        yield from _study_problems(job.study_spec)
    if not job.HasField("trial_job_spec"):
        yield "trial_job_spec", "Trial job spec is required."
    else:
        yield from spec_problems(job.trial_job_spec, "trial_job_spec", location)


def _count_problems(job: Any) -> Iterator[Problem]:
    if job.max_trial_count < 1:
        yield "max_trial_count", "Max trial count must be greater than 0."
    if job.parallel_trial_count < 1:
        yield "parallel_trial_count", "Parallel trial count must be greater than 0."
    elif job.parallel_trial_count > job.max_trial_count:
        yield "parallel_trial_count", "Parallel trial count must not exceed max_trial_count."
    if job.max_failed_trial_count < 0:
        yield "max_failed_trial_count", "Max failed trial count must not be negative."


def _study_problems(study: Any) -> Iterator[Problem]:
    if not study.metrics:
        yield "study_spec.metrics", "At least one metric is required."
    yield from _id_problems((each.metric_id for each in study.metrics), "metrics", "metric_id")
    if not study.parameters:
        yield "study_spec.parameters", "At least one parameter is required."
    ids = (each.parameter_id for each in study.parameters)
    yield from _id_problems(ids, "parameters", "parameter_id")
    for index, parameter in enumerate(study.parameters):
        yield from _parameter_problems(parameter, f"study_spec.parameters[{index}]")
    is_grid = _enum_name(study, "algorithm") == "GRID_SEARCH"
    if is_grid and any(each.HasField("double_value_spec") for each in study.parameters):
        text = "To use grid search, all parameters must be INTEGER, CATEGORICAL, or DISCRETE."
        yield "study_spec.algorithm", text


def _id_problems(ids: Iterable[str], collection: str, field: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, each in enumerate(ids):
        path = f"study_spec.{collection}[{index}].{field}"
        if not each:
            yield path, f"A {field} is required."
        elif any(map(str.isspace, each)):
            yield path, f"The {field} {each!r} must not contain whitespace."
        elif each in seen:
            yield path, f"The {field} {each!r} is not unique."
        seen.add(each)


def _parameter_problems(parameter: Any, path: str) -> Iterator[Problem]:
    kind = parameter.WhichOneof("parameter_value_spec")
    if kind is None:
        yield path, "One of double_, integer_, categorical_ and discrete_value_spec is required."
        return
    spec, scale = getattr(parameter, kind), _enum_name(parameter, "scale_type")
    if kind == "categorical_value_spec":
        if not spec.values:
            yield f"{path}.{kind}.values", "At least one category is required."
        if parameter.scale_type:
            yield f"{path}.scale_type", "Leave scale_type unset for categorical parameters."
        return
    if kind == "discrete_value_spec":
        yield from _discrete_problems(list(spec.values), f"{path}.{kind}.values")
        lowest = min(spec.values, default=math.inf)
    else:
        lowest = spec.min_value
        if spec.min_value > spec.max_value:
            yield f"{path}.{kind}", "min_value must not be greater than max_value."
    if scale in _LOG_SCALES and lowest <= 0:
        text = f"With {scale} the entire feasible space must be strictly positive."
        yield f"{path}.scale_type", text


def _discrete_problems(values: list[float], path: str) -> Iterator[Problem]:
    if not 1 <= len(values) <= _MOST_DISCRETE:
        yield path, f"Between 1 and {_MOST_DISCRETE} values are required."
    elif any(one >= other for one, other in pairwise(values)):
        yield path, "The values should be in increasing order."


def _enum_name(message: Any, field: str) -> str:
    kind = message.DESCRIPTOR.fields_by_name[field].enum_type
    return str(kind.values_by_number[getattr(message, field)].name)
