"""What Vertex AI asks of the search of a tuned job.

By the reference of HyperparameterTuningJob and of StudySpec,
https://cloud.google.com/vertex-ai/docs/reference/rest/v1/StudySpec.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from distlaunch.checks.problem import error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.request_view import JobRequest

_MOST_VALUES = 1_000
_NEAREST = 1e-10  # that two values of a list may be to each other
_LOGARITHMIC = ("UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE")
_NO_SCALE = "SCALE_TYPE_UNSPECIFIED"
_Fault = tuple[str, str, str]  # where, what is wrong, what mends it
_KINDS = ("doubleValueSpec", "integerValueSpec", "categoricalValueSpec", "discreteValueSpec")


def problems(asked: JobRequest) -> Iterator[Problem]:
    """Yield why no search can be as a tuned job says it; nothing of any other job.

    Parameters
    ----------
    asked
        What the job asks for.
    """
    for where, what, remedy in _faults(asked.search) if asked.search is not None else ():
        yield error("tuning-impossible", where, what, remedy)


def _faults(search: Mapping[str, Any]) -> Iterator[_Fault]:
    study = search.get("studySpec", {})
    parameters = study.get("parameters", [])
    yield from _of_trials(search)
    metrics = [each.get("metricId", "") for each in study.get("metrics", [])]
    yield from _of_names(metrics, "metric", "tuning.metric")
    names = [each.get("parameterId", "") for each in parameters]
    yield from _of_names(names, "parameter", "tuning.parameters")
    everything = list(_with_conditional(parameters))
    for parameter in everything:
        yield from _of_parameter(parameter)
    if study.get("algorithm") == "GRID_SEARCH":
        yield from _of_grid(everything)


def _of_trials(search: Mapping[str, Any]) -> Iterator[_Fault]:
    trials, at_once = search.get("maxTrialCount", 0), search.get("parallelTrialCount", 0)
    if trials < 1:
        what = f"a search has 1 trial or more, and this has {trials}"
        yield "tuning.trials", what, "say how many, as trials: 20"
    if at_once < 1:
        what = f"1 trial or more runs at once, and {at_once} are to"
        yield "tuning.parallel_trials", what, "write parallel_trials: 1, or more"
    elif at_once > trials > 0:
        what = f"{at_once} trials are to run at once, and there are {trials} in all"
        remedy = f"write parallel_trials: {trials} or less, or trials: {at_once} or more"
        yield "tuning.parallel_trials", what, remedy
    failed = search.get("maxFailedTrialCount", 0)
    if failed < 0:
        remedy = "write 0, to leave it to Vertex AI, or a number of trials"
        yield "vertex.maxFailedTrialCount", f"{failed} trials cannot fail", remedy


def _of_names(names: list[str], kind: str, where: str) -> Iterator[_Fault]:
    if not names:
        yield where, f"there is no {kind}", "say one"
    for name in dict.fromkeys(names):
        if not name or re.search(r"\s", name):
            what = f"the name of a {kind} is a word without spaces, and not {name!r}"
            remedy = f"write {'_'.join(name.split()) or 'a name'}"
            yield where, what, remedy
        if names.count(name) > 1:
            yield where, f"{name!r} is there {names.count(name)} times", "say it once"


def _with_conditional(parameters: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield parameters, and those that hang on the value of one."""
    for each in parameters:
        yield each
        below = each.get("conditionalParameterSpecs", [])
        yield from _with_conditional(one.get("parameterSpec", {}) for one in below)


def _of_parameter(parameter: Mapping[str, Any]) -> Iterator[_Fault]:
    name = parameter.get("parameterId", "")
    where = f"tuning.parameters.{name}"
    kind = next((kind for kind in _KINDS if kind in parameter), None)
    if kind is None:
        what = f"nothing is said of the values of {name!r}"
        yield where, what, "say type, min and max, or a list of values"
        return
    spec, scale = parameter[kind], parameter.get("scaleType", _NO_SCALE)
    if kind == "categoricalValueSpec":
        yield from _of_categories(where, name, spec.get("values", []), scale)
    elif kind == "discreteValueSpec":
        values = [float(value) for value in spec.get("values", [])]
        yield from _of_values(where, name, values)
        yield from _of_scale(where, name, scale, values)
    else:
        ends = [float(spec.get(end, 0)) for end in ("minValue", "maxValue")]
        if not ends[0] <= ends[1]:
            what = f"{name!r} goes from {ends[0]:g} to {ends[1]:g}, where there is nothing"
            yield where, what, "write a min that is at most the max"
        yield from _of_scale(where, name, scale, ends)


def _of_categories(where: str, name: str, values: list[str], scale: str) -> Iterator[_Fault]:
    if not values:
        yield f"{where}.values", f"{name!r} has no values", "list some"
    if scale != _NO_SCALE:
        what = f"{name!r} is one of some names, which have no scale"
        yield f"{where}.scale", what, "leave the scale out, or write type: double"


def _of_values(where: str, name: str, values: list[float]) -> Iterator[_Fault]:
    if not 1 <= len(values) <= _MOST_VALUES:
        what = f"{name!r} has {len(values)} values, and Vertex AI takes 1 to {_MOST_VALUES}"
        remedy = "write fewer, or type, min and max" if values else "list some"
        yield f"{where}.values", what, remedy
    elif any(other - one < _NEAREST for one, other in pairwise(values)):
        what = f"each value of {name!r} has to be greater than the one before, by {_NEAREST:g}"
        yield f"{where}.values", what, "put them in order, each once"


def _of_scale(where: str, name: str, scale: str, values: list[float]) -> Iterator[_Fault]:
    lowest = min(values, default=math.inf)
    if scale in _LOGARITHMIC and lowest <= 0:
        what = f"{name!r} begins with {lowest:g}, and a logarithmic scale is of numbers above 0"
        yield f"{where}.scale", what, "write numbers above 0 alone, as 0.0001, or scale: linear"


def _of_grid(parameters: Iterable[Mapping[str, Any]]) -> Iterator[_Fault]:
    names = [each.get("parameterId", "") for each in parameters if "doubleValueSpec" in each]
    if names:
        told = ", ".join(names)
        what = f"a grid has no end where a parameter is any number of a span, as {told}"
        remedy = "write values: with type: double in place of min and max, or algorithm: random"
        yield "tuning.algorithm", what, remedy
