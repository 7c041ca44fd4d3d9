"""The filter of a list of jobs, as far as Vertex AI documents it."""

from __future__ import annotations

import operator
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.service.answers import Refused
from distlaunch.emulator.service.filters import FilterProblem, comparisons, holds, read_filter
from distlaunch.emulator.service.parsing import states
from distlaunch.emulator.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.emulator.service.filters import Comparison

_ORDERS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPERATORS = {
    "display_name": ("=", "!=", ":"),
    "state": ("=", "!="),
    "create_time": ("=", "!=", "<", "<=", ">", ">="),
    "labels": ("=", "!=", ":"),
}


def job_filter(text: str) -> Callable[[dict[str, Any]], bool]:
    """Return what says whether a job is one that a filter asks for.

    Raises
    ------
    Refused
        If the text is no filter of jobs.
    """
    try:
        expression = read_filter(text)
        for comparison in comparisons(expression):
            _check(comparison)
    except FilterProblem as problem:
        raise Refused(400, f"Invalid filter {text!r}: {problem}.") from None
    return lambda job: holds(expression, lambda comparison: _compare(job, comparison))


def _check(comparison: Comparison) -> None:
    name, *rest = comparison.field or ("",)
    if name not in _OPERATORS or bool(rest) != (name == "labels") or len(rest) > 1:
        told = ".".join(comparison.field) or comparison.value
        known = "display_name, state, create_time and labels.KEY"
        raise FilterProblem(f"{told!r} is no field to filter by; supported are {known}")
    if comparison.operator not in _OPERATORS[name]:
        raise FilterProblem(f"{comparison.operator!r} is not supported for {name!r}")
    if name == "state" and comparison.value not in states():
        raise FilterProblem(f"{comparison.value!r} is no state of a job")
    if name == "create_time":
        try:
            parse_time(comparison.value)
        except ValueError as problem:
            raise FilterProblem(str(problem)) from None


def _compare(job: dict[str, Any], comparison: Comparison) -> bool:
    name, sign, value = comparison.field[0], comparison.operator, comparison.value
    if name == "create_time":
        return ordered(parse_time(job["createTime"]), sign, parse_time(value))
    if name == "labels":
        return _compare_label(job.get("labels", {}), comparison)
    found = job["displayName"] if name == "display_name" else job["state"]
    if sign == ":":
        return fnmatchcase(found, _only_stars(value))
    return bool(found == value) == (sign == "=")


def _compare_label(labels: dict[str, str], comparison: Comparison) -> bool:
    key = comparison.field[1]
    if comparison.operator == "!=":
        return labels.get(key) != comparison.value
    is_any = comparison.operator == ":" and comparison.value == "*"
    return key in labels and (is_any or labels[key] == comparison.value)


def ordered(one: Any, sign: str, other: Any) -> bool:
    """Whether two values stand to each other as an operator's sign says."""
    return bool(_ORDERS[sign](one, other))


def _only_stars(pattern: str) -> str:
    """Return a pattern in which nothing but a star is special."""
    return re.sub(r"[\[?]", lambda found: f"[{found[0]}]", pattern)
