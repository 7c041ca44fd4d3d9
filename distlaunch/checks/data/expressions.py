"""What an expression of a module comes to, found without running it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from distlaunch.checks.data import values
from distlaunch.checks.data.values import Given, Named, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.data.modules import Modules

UNKNOWN = object()
"""Stands among names and in tuples for what cannot be told; nothing comes to it."""

_ENVIRON = Named("os.environ")
_WRONG = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(slots=True)
class Module:
    """A module of the project.

    Parameters
    ----------
    name
        Its full name, as ``trainer.data``.
    file
        Posix, relative to the project's folder.
    names
        What its names stand for.
    imported
        The full names of what it imports.
    """

    name: str
    file: str
    names: dict[str, Any] = field(default_factory=dict)
    imported: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the project's own."""

    node: ast.FunctionDef
    module: Module


@dataclass(frozen=True, slots=True)
class Scope:
    """Where names are looked up: in a module, or in a call of a function of it."""

    modules: Modules
    module: Module
    names: dict[str, Any]

    def value(self, node: ast.expr) -> Any:
        """Return what an expression comes to.

        Raises
        ------
        Unknown
            If that cannot be told.
        """
        self.modules.count()
        try:
            found = self._of(node)
        except _WRONG:
            raise Unknown from None
        if found is UNKNOWN:
            raise Unknown
        return found

    def value_or_unknown(self, node: ast.expr) -> Any:
        """Return what an expression comes to, `UNKNOWN` where that cannot be told."""
        try:
            return self.value(node)
        except Unknown:
            return UNKNOWN

    def _of(self, node: ast.expr) -> Any:  # noqa: C901, PLR0911, PLR0912 - one for each kind
        value = self.value
        match node:
            case ast.Constant():
                return values.checked(node.value)
            case ast.Name(id=name):
                return self._named(name)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._entry(value(node.value), value(node.slice))
            case ast.Call():
                return self._call(node)
            case ast.JoinedStr(values=parts):
                return values.checked("".join(map(self._part, parts)))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return values.add(value(left), value(right))
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return values.divide(value(left), value(right))
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                return values.fill(value(left), value(right))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return values.checked(tuple(map(self.value_or_unknown, parts)))
            case ast.Dict():
                return self._dictionary(node)
            case ast.IfExp(test=test, body=body, orelse=other):
                return value(body if values.truth(value(test)) else other)
            case ast.BoolOp(op=op, values=parts):
                return self._either(parts, until=isinstance(op, ast.Or))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not values.truth(value(operand))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compared(value(left), op, value(right))
        raise Unknown

    def _named(self, name: str) -> Any:
        return self._resolved(self.names.get(name, self.module.names.get(name, Named(name))))

    def _attribute(self, node: ast.Attribute) -> Any:
        return self._resolved(values.attribute(self.value(node.value), node.attr))

    def _resolved(self, value: Any) -> Any:
        """Return what a name of one of the project's modules stands for, and any other value."""
        return self.modules.named(value.name) if isinstance(value, Named) else value

    def _entry(self, value: Any, index: Any) -> Any:
        if value == _ENVIRON:
            return self.modules.environment.get(index, UNKNOWN)
        if isinstance(value, (tuple, dict)):
            return value[index]
        raise Unknown

    def _dictionary(self, node: ast.Dict) -> dict[Any, Any]:
        found = {}
        for key, part in zip(node.keys, node.values, strict=True):
            if key is None:
                raise Unknown
            found[self.value(key)] = self.value_or_unknown(part)
        return found

    def _part(self, node: ast.expr) -> str:
        """Return a part of an f-string."""
        if not isinstance(node, ast.FormattedValue):
            return str(self.value(node))
        if node.conversion not in {-1, ord("s")}:
            raise Unknown
        form = str(self.value(node.format_spec)) if node.format_spec else ""
        return values.text(self.value(node.value), form)

    def _either(self, parts: list[ast.expr], *, until: bool) -> Any:
        found = None
        for part in parts:
            found = self.value(part)
            if values.truth(found) is until:
                break
        return found

    def _compared(self, left: Any, op: ast.cmpop, right: Any) -> bool:
        if right == _ENVIRON:
            right = () if self.modules.environment.get(left) is None else (left,)
        if not (values.is_plain(left) and values.is_plain(right)):
            raise Unknown
        match op:
            case ast.Eq() | ast.Is():
                return bool(left == right)
            case ast.NotEq() | ast.IsNot():
                return bool(left != right)
            case ast.In():
                return left in right
            case ast.NotIn():
                return left not in right
        raise Unknown

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value)
            if isinstance(owner, Given):
                return owner.then(node.func.attr, self._first(node, "batch_size"))
            if not isinstance(owner, Named):
                return values.method(owner, node.func.attr, self._words(node))
        function = self.value(node.func)
        if isinstance(function, Function):
            named = {key: self.value_or_unknown(word) for key, word in _keywords(node)}
            return self.modules.run(function, self._words(node), named)
        if isinstance(function, Named):
            return self._of_another(function.name, node)
        raise Unknown

    def _of_another(self, name: str, node: ast.Call) -> Any:
        """Return what a function of another package gives."""
        if name in self.modules.givers:
            return self._given(name.rpartition(".")[2], node)
        if name.startswith("tensorflow.data."):
            return Given("Dataset", self.module.file, node.lineno)
        words = self._words(node)
        self.modules.hand(name, words, f"{self.module.file}:{node.lineno}")
        if name in {"os.environ.get", "os.getenv"}:
            named = {key: self.value(word) for key, word in _keywords(node)}
            return self.modules.environment.get(*words, **named)
        if node.keywords or UNKNOWN in words:
            raise Unknown
        return values.function(name)(*words)

    def _given(self, kind: str, node: ast.Call) -> Given:
        """Return the records or arrays that a call makes."""
        pattern = self._first(node, "pattern") if kind == "Records" else UNKNOWN
        is_known = isinstance(pattern, (str, PurePosixPath))
        return Given(kind, self.module.file, node.lineno, str(pattern) if is_known else None)

    def _first(self, node: ast.Call, name: str) -> Any:
        """Return the first argument, which may also be given by its name."""
        words = [*node.args, *(word for key, word in _keywords(node) if key == name)]
        return self.value_or_unknown(words[0]) if words else UNKNOWN

    def _words(self, node: ast.Call) -> list[Any]:
        return [self.value_or_unknown(word) for word in node.args]


def _keywords(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    for each in node.keywords:
        if each.arg is None:
            raise Unknown
        yield each.arg, each.value
