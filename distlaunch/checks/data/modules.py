"""The modules of a project, read and not run: what their names stand for, what functions give."""

from __future__ import annotations

import ast
import contextlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from distlaunch.checks.data import values
from distlaunch.checks.data.expressions import UNKNOWN, Function, Module, Scope
from distlaunch.checks.data.values import Named, Unknown
from distlaunch.checks.project.modules import absolute, package_of
from distlaunch.rendering import CODE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from distlaunch.checks.data.values import Environment

_DEEPEST = 8  # calls of the project's own functions inside each other
_MOST_EXPRESSIONS = 20_000  # after which nothing more is known
_NOTHING = object()  # what a function has given before its return
# Calls that make no data, where they stand by themselves.
_HARMLESS = (
    "keras.backend.",
    "keras.mixed_precision.",
    "keras.utils.set_random_seed",
    "logging.",
    "numpy.random.",
    "print",
    "random.",
    "tensorflow.config.",
    "tensorflow.get_logger",
    "tensorflow.keras.backend.",
    "tensorflow.keras.mixed_precision.",
    "tensorflow.keras.utils.set_random_seed",
    "tensorflow.random.",
    "warnings.",
)
_NO_READERS = ("logging.", "os.", "pathlib.", "posixpath.", "print", "str", "sys.", "warnings.")
_HARMLESS_METHODS = frozenset(
    {"add", "append", "debug", "error", "extend", "info", "insert", "setLevel", "warning"}
)


class Modules:
    """The modules of a project, each read once, as it is asked for.

    Parameters
    ----------
    folder
        The project's folder.
    environment
        The variables that the program finds.
    engine_room
        The package with `Records` and `Arrays`; nothing of it is read.

    Attributes
    ----------
    acts
        Whether a statement was met that does something, such as to fetch the data: what is not
        there now may then be there when it is wanted.
    givers
        The full names of `Records` and `Arrays`.
    handed
        Paths of a home folder that something of another package is called with, and the place.
    """

    def __init__(self, folder: Path, environment: Environment, engine_room: str) -> None:
        self.acts = False
        self.handed: list[tuple[str, str]] = []
        self.environment = environment
        self.givers = (f"{engine_room}.input.Records", f"{engine_room}.input.Arrays")
        self._folder = folder
        self._engine_room = f"{engine_room}."
        self._modules: dict[str, Module | None] = {}
        self._depth = self._expressions = 0

    def read(self, name: str) -> Module | None:
        """Return a module, None where there is no such file or it cannot be read."""
        if name not in self._modules:
            self._modules[name] = None
            self._read(name)
        return self._modules[name]

    def named(self, name: str) -> Any:
        """Return what a full name stands for: of a module of the project, or of itself."""
        seen: set[str] = set()
        found: Any = Named(name)
        while isinstance(found, Named) and found.name not in seen:
            seen.add(found.name)
            found = self._entry(found.name)
        return found

    def _entry(self, name: str) -> Any:
        origin, _, last = name.rpartition(".")
        if not origin or name.startswith(self._engine_room):
            return Named(name)
        module = self.read(origin)
        return module.names.get(last, Named(name)) if module else Named(name)

    def call(self, module: Module, name: str) -> Any:
        """Return what a function gives that is called without arguments.

        Raises
        ------
        Unknown
            If that cannot be told.
        """
        function = module.names.get(name)
        if not isinstance(function, Function):
            raise Unknown
        return self.run(function, [], {})

    def run(self, function: Function, words: list[Any], named: dict[str, Any]) -> Any:
        """Return what a function of the project's own gives.

        Raises
        ------
        Unknown
            If that cannot be told.
        """
        if self._depth == _DEEPEST or function.node.decorator_list:
            raise Unknown
        self._depth += 1
        try:
            names = self._bound(function, words, named)
            given = _run(function.node.body, Scope(self, function.module, names))
        finally:
            self._depth -= 1
        return None if given is _NOTHING else given

    def hand(self, function: str, words: Iterable[Any], where: str) -> None:
        """Note what a function of another package is called with."""
        if function.startswith(_NO_READERS):
            return
        for word in words:
            if isinstance(word, (str, PurePosixPath)) and str(word).startswith(values.HOMES):
                self.handed.append((str(word), where))

    def count(self) -> None:
        """Count an expression.

        Raises
        ------
        Unknown
            If there were too many.
        """
        self._expressions += 1
        if self._expressions > _MOST_EXPRESSIONS:
            raise Unknown

    def _read(self, name: str) -> None:
        path = name.replace(".", "/")
        for file in (f"{path}.py", f"{path}/__init__.py"):
            try:
                tree = ast.parse((self._folder / file).read_bytes())
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            module = self._modules[name] = Module(name, file)
            module.names |= {"__file__": f"{CODE}/{file}", "__name__": name}
            with contextlib.suppress(Unknown, RecursionError):
                _run(tree.body, Scope(self, module, module.names))
            return

    def _bound(self, function: Function, words: list[Any], named: dict[str, Any]) -> dict[str, Any]:
        """Return what a function's parameters stand for."""
        wanted = function.node.args
        positional = [each.arg for each in (*wanted.posonlyargs, *wanted.args)]
        by_name = [each.arg for each in wanted.kwonlyargs]
        outside = Scope(self, function.module, function.module.names)
        bound = dict(zip(reversed(positional), reversed(wanted.defaults), strict=False))
        given = dict(zip(by_name, wanted.kw_defaults, strict=True))
        bound |= {name: default for name, default in given.items() if default is not None}
        found = {name: outside.value_or_unknown(node) for name, node in bound.items()}
        found |= dict(zip(positional, words, strict=False)) | named
        is_more = len(words) > len(positional) or wanted.vararg or wanted.kwarg
        if is_more or found.keys() != {*positional, *by_name}:
            raise Unknown
        return found


def _run(body: Iterable[ast.stmt], scope: Scope) -> Any:
    """Go through statements; return what they return, `_NOTHING` where they don't.

    Raises
    ------
    Unknown
        If that cannot be told.
    """
    for statement in body:
        given = _go_through(statement, scope)
        if given is not _NOTHING:
            return given
    return _NOTHING


def _go_through(node: ast.stmt, scope: Scope) -> Any:
    match node:
        case ast.Return(value=value):
            return scope.value(value) if value else None
        case ast.If():
            return _choose(node, scope)
        case ast.With():
            for item in node.items:
                scope.value_or_unknown(item.context_expr)
                _forget(item, scope)
            return _run(node.body, scope)
        case ast.Assign(targets=targets, value=value):
            _assign(targets, scope.value_or_unknown(value), scope)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            _assign([target], scope.value_or_unknown(value), scope)
        case ast.FunctionDef():
            scope.names[node.name] = Function(node, scope.module)
        case ast.Import() | ast.ImportFrom():
            _import(node, scope)
        case ast.Raise():
            raise Unknown
        case _:
            _pass_over([node], scope)
    return _NOTHING


def _choose(node: ast.If, scope: Scope) -> Any:
    try:
        is_so = values.truth(scope.value(node.test))
    except Unknown:
        _pass_over([*node.body, *node.orelse], scope)
        return _NOTHING
    return _run(node.body if is_so else node.orelse, scope)


def _pass_over(body: list[ast.stmt], scope: Scope) -> None:
    """Forget what statements may change that may be run or not.

    Raises
    ------
    Unknown
        If they may return something.
    """
    for statement in body:
        _forget(statement, scope)
        for node in _of_this_scope(statement):
            if isinstance(node, ast.Return):
                raise Unknown
            if isinstance(node, ast.Expr) and _does_something(node, scope):
                scope.modules.acts = True


def _forget(changed: ast.AST, scope: Scope) -> None:
    for node in ast.walk(changed):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                scope.names[name] = UNKNOWN
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                scope.names[name] = UNKNOWN
            case ast.alias():
                scope.names[node.asname or node.name.partition(".")[0]] = UNKNOWN
            case ast.Subscript(value=held, ctx=ast.Store() | ast.Del()):
                _forget_held(held, scope)
            case ast.Call(func=ast.Attribute(value=held)):
                _forget_held(held, scope)


def _forget_held(node: ast.expr, scope: Scope) -> None:
    """Forget a list or a dictionary that may be another after this."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    if isinstance(node, ast.Name):
        there = scope.names.get(node.id, scope.module.names.get(node.id))
        if isinstance(there, (dict, tuple)):
            scope.names[node.id] = UNKNOWN


def _does_something(node: ast.Expr, scope: Scope) -> bool:
    """Whether a statement is a call that may do more than to configure or to tell."""
    call = node.value
    if not isinstance(call, ast.Call):
        return False
    if isinstance(call.func, ast.Attribute) and call.func.attr in _HARMLESS_METHODS:
        return False
    found = scope.value_or_unknown(call.func)
    return not (isinstance(found, Named) and found.name.startswith(_HARMLESS))


def _assign(targets: Iterable[ast.expr], value: Any, scope: Scope) -> None:
    for target in targets:
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        else:
            _forget(target, scope)


def _import(node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            full = f"{_origin(node, scope.module)}.{alias.name}"
            scope.names[alias.asname or alias.name] = Named(full)
        else:
            full, first = alias.name, alias.name.partition(".")[0]
            scope.names[alias.asname or first] = Named(full if alias.asname else first)
        scope.module.imported.add(full)


def _origin(node: ast.ImportFrom, module: Module) -> str:
    """Return the full name of what something is imported from."""
    is_package = module.file.endswith("/__init__.py")
    package = package_of(module.name, is_package=is_package)
    return absolute(package, node.module or "", node.level) or ""


def _of_this_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Return all that is in a statement but for functions and classes."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return
    yield node
    for below in ast.iter_child_nodes(node):
        yield from _of_this_scope(below)
