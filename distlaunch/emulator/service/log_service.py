"""Cloud Logging's ``entries:list``.

https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list, with the filters of
https://cloud.google.com/logging/docs/view/logging-query-language.
"""

from __future__ import annotations

import base64
import json
import re
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.logs import SEVERITIES, Logs, as_json
from distlaunch.emulator.service.answers import Answer, Refused, invalid_payload
from distlaunch.emulator.service.filters import (
    FilterProblem,
    comparisons,
    demands,
    holds,
    read_filter,
)
from distlaunch.emulator.service.job_filters import ordered
from distlaunch.emulator.store import project_number
from distlaunch.emulator.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from distlaunch.emulator.logs import LogEntry
    from distlaunch.emulator.service.answers import Request
    from distlaunch.emulator.service.filters import Comparison, Expression

MOST_ON_A_PAGE = 1_000
LONGEST_FILTER = 20_000

_USUAL_PAGE = 50
_FIELDS = ("resourceNames", "projectIds", "filter", "orderBy", "pageSize", "pageToken")
_ENTRY_FIELDS = """
logname resource timestamp receivetimestamp severity insertid httprequest labels operation trace
spanid tracesampled sourcelocation textpayload jsonpayload protopayload
"""
# What filters ask for most, without the detour over an entry's JSON.
_QUICK: dict[tuple[str, ...], Callable[[LogEntry], str]] = {
    ("resource", "type"): lambda _: "ml_job",
    ("resource", "labels", "job_id"): lambda entry: entry.job_id,
    ("resource", "labels", "task_name"): lambda entry: entry.task_name,
    ("insertid",): lambda entry: entry.insert_id,
}
_TIMES = ("timestamp", "receivetimestamp")
_ORDERS = {"": False, "timestamp asc": False, "timestamp": False, "timestamp desc": True}


class LogService:
    """Tells of log entries.

    Parameters
    ----------
    logs
        Where they are.
    """

    def __init__(self, logs: Logs) -> None:
        self._logs = logs

    def list(self, request: Request) -> Answer:
        """Give a page of the entries that a filter asks for.

        Raises
        ------
        Refused
            If the request cannot be.
        """
        asked = request.json()
        _check_fields(asked)
        projects, size = _projects(asked), _page_size(asked)
        newest_first, expression = _order(asked), _expression(asked)
        after = _page_token(asked)
        found = self._found(projects, expression, newest_first=newest_first, after=after)
        page = list(islice(found, size + 1))
        told = [as_json(entry, self._logs.project(entry.job_id)) for entry in page[:size]]
        answer: dict[str, Any] = {"entries": told} if told else {}
        if len(page) > size:
            answer["nextPageToken"] = _token(asked, page[size - 1])
        return Answer(answer)

    def _found(
        self,
        projects: set[str],
        expression: Expression,
        *,
        newest_first: bool,
        after: int | None,
    ) -> Iterator[LogEntry]:
        job_id, earliest = _bounds(expression)
        entries = self._logs.scan(
            job_id=job_id, earliest=earliest, after=after, newest_first=newest_first
        )
        for entry in entries:
            project = self._logs.project(entry.job_id)
            is_asked_for = partial(_compare, entry, project)
            if project_number(project) in projects and holds(expression, is_asked_for):
                yield entry


def _check_fields(asked: dict[str, Any]) -> None:
    wrong = [name for name in asked if name not in _FIELDS]
    if wrong:
        raise invalid_payload(*(f'Unknown name "{name}": Cannot find field.' for name in wrong))


def _projects(asked: dict[str, Any]) -> set[str]:
    """Return the numbers of the projects asked about."""
    names = asked.get("resourceNames", [])
    ids = asked.get("projectIds", [])
    if not isinstance(names, list) or not isinstance(ids, list) or not (names or ids):
        raise Refused(400, "At least one of resource_names is required.")
    projects = [str(each) for each in ids]
    for name in names:
        found = re.fullmatch(r"projects/([^/]+)(/.*)?", str(name))
        if found is None:
            raise Refused(
                400, f"The resource name {name!r} is not of the form projects/PROJECT_ID."
            )
        projects.append(found[1])
    return set(map(project_number, projects))


def _page_size(asked: dict[str, Any]) -> int:
    size = asked.get("pageSize", 0)
    if isinstance(size, bool) or not isinstance(size, int):
        raise invalid_payload(f"Invalid value at 'page_size' (TYPE_INT32), {json.dumps(size)}")
    if size < 0:
        raise Refused(400, "page_size must not be negative.")
    return min(size or _USUAL_PAGE, MOST_ON_A_PAGE)


def _order(asked: dict[str, Any]) -> bool:
    """Whether the newest comes first."""
    text = " ".join(str(asked.get("orderBy", "")).split())
    if text.lower() not in _ORDERS:
        raise Refused(
            400, f"Unsupported order_by {text!r}; use 'timestamp asc' or 'timestamp desc'."
        )
    return _ORDERS[text.lower()]


def _expression(asked: dict[str, Any]) -> Expression:
    text = asked.get("filter", "")
    if not isinstance(text, str) or len(text) > LONGEST_FILTER:
        raise Refused(400, f"The filter must be text of no more than {LONGEST_FILTER} characters.")
    try:
        expression = read_filter(text)
        for comparison in comparisons(expression):
            _check(comparison)
    except FilterProblem as problem:
        raise Refused(400, f"Unparseable filter: {problem}; filter: {text[:200]}") from None
    return expression


def _check(comparison: Comparison) -> None:
    if not comparison.field:
        return
    first = comparison.field[0].lower()
    if first not in _ENTRY_FIELDS.split():
        raise FilterProblem(f"Field not found: '{'.'.join(comparison.field)}'")
    if first in _TIMES:
        try:
            parse_time(comparison.value)
        except ValueError as problem:
            raise FilterProblem(str(problem)) from None
    if first == "severity" and comparison.operator not in (":", "=~", "!~"):
        _severity(comparison.value)
    if comparison.operator in ("=~", "!~"):
        try:
            re.compile(comparison.value)
        except re.error as problem:
            raise FilterProblem(f"invalid regular expression: {problem}") from None


def _bounds(expression: Expression) -> tuple[str | None, datetime | None]:
    """Return the one job that an expression asks for, if it is one, and the earliest time."""
    job_id: str | None = None
    earliest: datetime | None = None
    for each in demands(expression):
        field = tuple(map(str.lower, each.field))
        if field == ("resource", "labels", "job_id") and each.operator == "=":
            job_id = each.value
        elif field == ("timestamp",) and each.operator in ("=", ">", ">="):
            time = parse_time(each.value)
            earliest = max(earliest or time, time)
    return job_id, earliest


def _compare(entry: LogEntry, project: str, comparison: Comparison) -> bool:
    field = tuple(map(str.lower, comparison.field))
    operator, value = comparison.operator, comparison.value
    if field == ("timestamp",):
        return ordered(entry.time, operator, parse_time(value))
    if field == ("receivetimestamp",):
        return ordered(entry.time, operator, parse_time(value))
    if field == ("severity",) and operator not in (":", "=~", "!~"):
        return ordered(_severity(entry.severity), operator, _severity(value))
    if field in _QUICK:
        return _compare_text(_QUICK[field](entry), comparison)
    told = as_json(entry, project)
    if not field:
        return any(value.lower() in text.lower() for text in _texts(told))
    return any(_compare_text(each, comparison) for each in _values(told, list(field)))


def _compare_text(found: str, comparison: Comparison) -> bool:
    operator, value = comparison.operator, comparison.value
    if operator in ("=~", "!~"):
        return (re.search(value, found) is not None) == (operator == "=~")
    if operator == ":":
        return value == "*" or value.lower() in found.lower()
    return ordered(found.lower(), operator, value.lower())


def _values(told: Any, path: list[str]) -> Iterator[str]:
    """Give the texts that a path leads to; names are compared without regard to case."""
    if not isinstance(told, dict):
        if not path:
            yield str(told)
        return
    if not path:
        yield from _texts(told)
        return
    for name, value in told.items():
        depth = name.count(".") + 1  # a label's name may hold dots
        if name.lower() == ".".join(path[:depth]):
            yield from _values(value, path[depth:])


def _texts(told: Any) -> Iterator[str]:
    if isinstance(told, dict):
        for value in told.values():
            yield from _texts(value)
    else:
        yield str(told)


def _severity(name: str) -> int:
    if name.upper() in SEVERITIES:
        return SEVERITIES.index(name.upper())
    if name.isdecimal() and int(name) % 100 == 0 and int(name) // 100 < len(SEVERITIES):
        return int(name) // 100
    raise FilterProblem(f"invalid severity '{name}'")


def _token(asked: dict[str, Any], last: LogEntry) -> str:
    token = [asked.get("filter", ""), asked.get("orderBy", ""), last.number]
    return base64.urlsafe_b64encode(json.dumps(token).encode()).decode()


def _page_token(asked: dict[str, Any]) -> int | None:
    token = asked.get("pageToken")
    if not token:
        return None
    try:
        text, order, number = json.loads(base64.urlsafe_b64decode(token))
        number = int(number)
    except (ValueError, TypeError):
        raise Refused(400, "page_token is invalid.") from None
    if (text, order) != (asked.get("filter", ""), asked.get("orderBy", "")):
        raise Refused(400, "page_token doesn't match arguments from the request.")
    return number
