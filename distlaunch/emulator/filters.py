"""Filters and pages of lists, of jobs and of log entries.

Filters are comparisons with AND, OR and parentheses, the part of
https://cloud.google.com/logging/docs/view/logging-query-language that the launcher, gcloud and
Google's clients send. OR binds closer than AND; AND may be left out.
"""

from __future__ import annotations

import operator
import re
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from distlaunch import timestamps
from distlaunch.emulator.http import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

# Cloud Logging's: https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list
MAX_LENGTH = 20_000
SEVERITIES = (
    *("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING"),
    *("ERROR", "CRITICAL", "ALERT", "EMERGENCY"),
)

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    ":": lambda value, part: part == "*" or str(part).lower() in str(value).lower(),
}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|!=|<=|>=|[=<>:()]|[^\s()"=<>!:]+|\S')
_WORD = re.compile(r'[^\s()"=<>!:]+')
_BELOW_MICROSECONDS = re.compile(r"(\.[0-9]{6})[0-9]{1,3}")


@dataclass(frozen=True, slots=True)
class Predicate:
    """Whether a job or a log entry, in Google's JSON, is in a list."""

    holds: Callable[[Mapping[str, Any]], bool] = lambda _: True
    values: Mapping[str, frozenset[str]] = field(default_factory=dict)  # all that a field may have
    since: str = ""  # the earliest timestamp that an item may have

    def __call__(self, item: Mapping[str, Any]) -> bool:
        return self.holds(item)


def parse_filter(text: str, fields: Collection[str]) -> Predicate:
    """Parse a filter of what has these fields, by their JSON names; an empty one matches all."""
    if len(text) > MAX_LENGTH:
        raise ApiError(400, f"The filter must not exceed {MAX_LENGTH} characters.")
    tokens = _TOKEN.findall(text)
    if not tokens:
        return Predicate()
    try:
        return _Parser(tokens, fields).parse()
    except ValueError as problem:
        raise ApiError(400, f"Unparseable filter: {problem}") from None


def select_page(
    items: list[dict[str, Any]], key: str, *, size: object, token: str, largest: int
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the page behind a token, and the field with the token of the next one, if any.

    The token of a page is what the last item of the page before has in the field `key`.
    """
    if not isinstance(size, int) or size < 0:
        raise ApiError(400, f"Invalid pageSize {size!r}.")
    keys = ["", *(item[key] for item in items)]
    if token not in keys:
        raise ApiError(400, "The page token is invalid.")
    start = keys.index(token)
    end = start + min(size or largest, largest)
    return items[start:end], {"nextPageToken": keys[end]} if end < len(items) else {}


class _Parser:
    def __init__(self, tokens: list[str], fields: Collection[str]) -> None:
        self._tokens = deque([*tokens, ""])
        self._fields = fields

    def parse(self) -> Predicate:
        predicate = self._all_of()
        self._expect("")
        return predicate

    def _all_of(self) -> Predicate:
        parts = [self._any_of()]
        while self._tokens[0] not in ("", ")"):
            self._accept("AND")
            parts.append(self._any_of())
        if len(parts) == 1:
            return parts[0]
        values: dict[str, frozenset[str]] = {}
        for part in parts:
            values |= {name: values.get(name, of) & of for name, of in part.values.items()}
        since = max(part.since for part in parts)
        return Predicate(lambda item: all(part(item) for part in parts), values, since)

    def _any_of(self) -> Predicate:
        parts = [self._comparison()]
        while self._accept("OR"):
            parts.append(self._comparison())
        if len(parts) == 1:
            return parts[0]
        names = set.intersection(*({*part.values} for part in parts))
        values = {name: frozenset().union(*(part.values[name] for part in parts)) for name in names}
        since = min(part.since for part in parts)
        return Predicate(lambda item: any(part(item) for part in parts), values, since)

    def _comparison(self) -> Predicate:
        if self._accept("("):
            predicate = self._all_of()
            self._expect(")")
            return predicate
        path = self._operand().split(".")
        path[0] = re.sub("_(.)", lambda match: match[1].upper(), path[0])
        if path[0] not in self._fields:
            raise ValueError(f"unknown field {path[0]!r}")
        sign = self._tokens.popleft()
        if sign not in _OPERATORS:
            raise _unexpected(sign)
        return _compare(path, sign, self._operand())

    def _operand(self) -> str:
        token = self._tokens.popleft()
        if len(token) > 1 and token[0] == token[-1] == '"':
            return re.sub(r"\\(.)", r"\1", token[1:-1])
        if not _WORD.fullmatch(token) or token in ("AND", "OR", "NOT"):
            raise _unexpected(token)
        return token

    def _accept(self, token: str) -> bool:
        if self._tokens[0] != token:
            return False
        self._tokens.popleft()
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise _unexpected(self._tokens[0])


def _unexpected(token: str) -> ValueError:
    return ValueError(f"expected FIELD OPERATOR VALUE, AND, OR or (…), got {token!r}")


def _compare(path: list[str], sign: str, text: str) -> Predicate:
    """Return whether the value at a path compares so with a text; a missing one is only `!=`."""
    rank: Callable[[str], Any] = _rank if path == ["severity"] else str
    operand = rank(_normal_time(text) if path[0] in ("timestamp", "createTime") else text)

    def holds(item: Mapping[str, Any]) -> bool:
        value: Any = item
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return sign == "!=" if value is None else _OPERATORS[sign](rank(value), operand)

    values = {".".join(path): frozenset([text])} if sign == "=" else {}
    is_bound = path == ["timestamp"] and sign in ("=", ">", ">=")
    return Predicate(holds, values, operand if is_bound else "")


def _rank(severity: str) -> int:
    if severity.upper() not in SEVERITIES:
        raise ValueError(f"unknown severity {severity!r}")
    return SEVERITIES.index(severity.upper())


def _normal_time(text: str) -> str:
    """Return a time in RFC 3339, or the start of a day in UTC, as jobs and entries have it."""
    is_day = len(text) == len("2026-11-21")
    in_full = f"{text}T00:00:00Z" if is_day else _BELOW_MICROSECONDS.sub(r"\1", text)
    fraction = ".%f" if "." in in_full else ""
    return timestamps.format(
        datetime.strptime(in_full, f"%Y-%m-%dT%H:%M:%S{fraction}%z").timestamp()
    )
