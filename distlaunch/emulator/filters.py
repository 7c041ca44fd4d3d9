"""Filters of jobs and log entries: comparisons with AND, OR and parentheses.

This is the part of https://cloud.google.com/logging/docs/view/logging-query-language that the
launcher, gcloud and Google's clients send. OR binds closer than AND; AND may be left out.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.api_error import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from typing import TypeAlias

MAX_LENGTH = 20_000

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TOKEN = re.compile(
    r'\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<sign>!=|<=|>=|[=<>:()])|(?P<word>[^\s()"=<>!:]+))\s*'
)
_MAX_DEPTH = 50

Value: TypeAlias = "str | int | datetime | None"
"""The value of a field; None if it is not set."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field, an operator and a value."""

    field: tuple[str, ...]
    sign: str
    value: Value


@dataclass(frozen=True, slots=True)
class AllOf:
    """Holds if all parts do."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Holds if one part does."""

    parts: tuple[Expression, ...]


Expression: TypeAlias = "Comparison | AllOf | AnyOf"


def parse_filter(text: str, convert: Callable[[tuple[str, ...], str], Value]) -> Expression:
    """Parse a filter; an empty one matches everything."""
    if len(text) > MAX_LENGTH:
        raise ApiError(400, f"The filter must not exceed {MAX_LENGTH} characters.")
    return _Parser(text, convert).parse()


def matches(expression: Expression, field: Callable[[tuple[str, ...]], Value]) -> bool:
    """Return whether an expression holds, where `field` returns the values of fields."""
    if isinstance(expression, Comparison):
        return _compare(expression, field(expression.field))
    quantifier = any if isinstance(expression, AnyOf) else all
    return quantifier(matches(part, field) for part in expression.parts)


def required(expression: Expression) -> Iterator[Comparison]:
    """Yield the comparisons that hold wherever the expression does."""
    if isinstance(expression, Comparison):
        yield expression
    elif isinstance(expression, AllOf):
        for part in expression.parts:
            yield from required(part)


def _compare(comparison: Comparison, value: Value) -> bool:
    if value is None:
        return comparison.sign == "!="
    if comparison.sign == ":":
        part = str(comparison.value)
        return part == "*" or part.lower() in str(value).lower()
    return _OPERATORS[comparison.sign](value, comparison.value)


class _Parser:
    def __init__(self, text: str, convert: Callable[[tuple[str, ...], str], Value]) -> None:
        self._text = text
        self._convert = convert
        self._at = 0
        self._depth = 0

    def parse(self) -> Expression:
        if not self._text.strip():
            return AllOf(())
        expression = self._all_of()
        if self._at < len(self._text):
            raise self._problem()
        return expression

    def _all_of(self) -> Expression:
        parts = [self._any_of()]
        while self._at < len(self._text) and self._peek() != ")":
            self._accept("AND")
            parts.append(self._any_of())
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _any_of(self) -> Expression:
        parts = [self._comparison()]
        while self._accept("OR"):
            parts.append(self._comparison())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _comparison(self) -> Expression:
        if self._accept("("):
            self._depth += 1
            if self._depth > _MAX_DEPTH:
                raise self._problem()
            expression = self._all_of()
            if not self._accept(")"):
                raise self._problem()
            self._depth -= 1
            return expression
        field = tuple(self._operand().split("."))
        sign = self._peek()
        if sign not in (*_OPERATORS, ":"):
            raise self._problem()
        self._next()
        text = self._operand()
        try:
            return Comparison(field, sign, self._convert(field, text))
        except ValueError as problem:
            raise ApiError(400, f"Unparseable filter: {problem}") from None

    def _operand(self) -> str:
        token = self._next()
        if token["text"] is not None:
            return re.sub(r"\\(.)", r"\1", token["text"][1:-1])
        if token["word"] is None or token["word"] in ("AND", "OR", "NOT"):
            raise self._problem(token.start())
        return token["word"]

    def _peek(self) -> str:
        token = _TOKEN.match(self._text, self._at)
        return token[0].strip() if token else ""

    def _accept(self, word: str) -> bool:
        if self._peek() != word:
            return False
        self._next()
        return True

    def _next(self) -> re.Match[str]:
        token = _TOKEN.match(self._text, self._at)
        if token is None:
            raise self._problem()
        self._at = token.end()
        return token

    def _problem(self, at: int | None = None) -> ApiError:
        rest = self._text[self._at if at is None else at :][:40]
        text = f"Unparseable filter: expected FIELD OPERATOR VALUE, AND, OR or (…), got {rest!r}"
        return ApiError(400, text)
