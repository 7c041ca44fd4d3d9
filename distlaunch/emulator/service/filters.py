"""Google's filter language, as lists of resources and of log entries take it.

The grammar is that of https://google.aip.dev/160 and of the Logging query language: NOT binds
closest, then OR, then AND, which may be left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Operator = Literal["=", "!=", "<", "<=", ">", ">=", ":", "=~", "!~"]


class FilterProblem(Exception):
    """A text that is no filter, or one that asks for what cannot be."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison.

    Parameters
    ----------
    field
        The path to a field, empty where a word stands alone.
    operator
        ``:`` where a word stands alone.
    value
        What it is compared with, without quotes.
    """

    field: tuple[str, ...]
    operator: Operator
    value: str


@dataclass(frozen=True, slots=True)
class Negation:
    """What must not hold."""

    part: Expression


@dataclass(frozen=True, slots=True)
class Conjunction:
    """Parts that all must hold; an empty one always does."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Disjunction:
    """Parts of which one must hold."""

    parts: tuple[Expression, ...]


Expression = Comparison | Negation | Conjunction | Disjunction


def read_filter(text: str) -> Expression:
    """Read a filter; an empty one lets everything through.

    Raises
    ------
    FilterProblem
        If it is none.
    """
    reader = _Reader(text)
    if reader.is_done():
        return Conjunction(())
    expression = reader.expression()
    if not reader.is_done():
        raise FilterProblem(f"unexpected {reader.here!r}")
    return expression


def holds(expression: Expression, compare: Callable[[Comparison], bool]) -> bool:
    """Whether an expression holds, where `compare` says which of its comparisons do."""
    if isinstance(expression, Comparison):
        return compare(expression)
    if isinstance(expression, Negation):
        return not holds(expression.part, compare)
    some = any if isinstance(expression, Disjunction) else all
    return some(holds(part, compare) for part in expression.parts)


def comparisons(expression: Expression) -> Iterator[Comparison]:
    """Give all comparisons of an expression."""
    if isinstance(expression, Comparison):
        yield expression
    elif isinstance(expression, Negation):
        yield from comparisons(expression.part)
    else:
        for part in expression.parts:
            yield from comparisons(part)


def demands(expression: Expression) -> Iterator[Comparison]:
    """Give the comparisons that must hold wherever the expression does."""
    if isinstance(expression, Comparison):
        yield expression
    elif isinstance(expression, Conjunction):
        for part in expression.parts:
            yield from demands(part)


_SPACE = re.compile(r"(\s|--[^\n]*(\n|$))*")
_OPERATOR = re.compile(r"!=|<=|>=|=~|!~|[=<>:]")
_PART = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"|(?P<word>[^\s()"=<>!:~,]+)', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_DEEPEST = 100


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._skip()

    def is_done(self) -> bool:
        return self._at == len(self._text)

    @property
    def here(self) -> str:
        """What stands here, for a message."""
        return self._text[self._at : self._at + 20]

    def expression(self) -> Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise FilterProblem("nested too deeply")
        parts = [self._factor()]
        while not self.is_done() and self.here[0] != ")":
            self._take_word("AND")
            parts.append(self._factor())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Conjunction(tuple(parts))

    def _factor(self) -> Expression:
        parts = [self._term()]
        while self._take_word("OR"):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else Disjunction(tuple(parts))

    def _term(self) -> Expression:
        if self._take_word("NOT") or self._take("-"):
            return Negation(self._simple())
        return self._simple()

    def _simple(self) -> Expression:
        if self._take("("):
            inner = self.expression()
            self._expect(")")
            return inner
        path = self._path()
        operator = _OPERATOR.match(self._text, self._at)
        if operator is None:
            return Comparison((), ":", ".".join(path))
        self._move(operator.end())
        return self._argument(path, cast("Operator", operator[0]))

    def _argument(self, field: tuple[str, ...], operator: Operator) -> Expression:
        if not self._take("("):
            return Comparison(field, operator, ".".join(self._path()))
        parts: list[tuple[str, Expression]] = [("", self._negatable(field, operator))]
        while not self._take(")"):
            by = "OR" if self._take_word("OR") else "AND"
            if by == "AND":
                self._take_word("AND")
            parts.append((by, self._negatable(field, operator)))
        return _grouped(parts)

    def _negatable(self, field: tuple[str, ...], operator: Operator) -> Expression:
        if self._take_word("NOT"):
            return Negation(self._argument(field, operator))
        return self._argument(field, operator)

    def _path(self) -> tuple[str, ...]:
        """Read a word, a quoted text, or several of them in a row, as ``labels."a.b"``."""
        path = [""]
        began = self._at
        while found := _PART.match(self._text, self._at):
            self._at = found.end()
            if found["text"] is not None:
                path[-1] += _ESCAPE.sub(_unescaped, found["text"])
            else:
                first, *rest = found["word"].split(".")
                path[-1] += first
                path += rest
        if self._at == began:
            raise FilterProblem(f"unexpected {self.here!r}" if self.here else "unexpected end")
        self._skip()
        return tuple(path)

    def _take(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._move(self._at + len(text))
        return True

    def _take_word(self, word: str) -> bool:
        found = re.compile(rf"{word}(?=[\s(\"]|$)").match(self._text, self._at)
        if found is None:
            return False
        self._move(found.end())
        return True

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise FilterProblem(f"expected {text!r}, got {self.here!r}")

    def _move(self, to: int) -> None:
        self._at = to
        self._skip()

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at


def _grouped(parts: list[tuple[str, Expression]]) -> Expression:
    """Return parts with the word before each as one expression: OR binds closer than AND."""
    groups: list[list[Expression]] = []
    for word, part in parts:
        if word == "OR":
            groups[-1].append(part)
        else:
            groups.append([part])
    made = [group[0] if len(group) == 1 else Disjunction(tuple(group)) for group in groups]
    return made[0] if len(made) == 1 else Conjunction(tuple(made))


def _unescaped(found: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "r": "\r"}.get(found[1], found[1])
