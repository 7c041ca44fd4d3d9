"""What a module's statements do to its names and what they return, found without running them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from distlaunch.checks.data import values
from distlaunch.checks.data.expressions import UNKNOWN, Function
from distlaunch.checks.data.values import Named, Unknown
from distlaunch.checks.project.modules import absolute, package_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distlaunch.checks.data.expressions import Module, Scope

NOTHING = object()
"""What statements have given that have not come to a return."""

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
_HARMLESS_METHODS = frozenset(
    {"add", "append", "debug", "error", "extend", "info", "insert", "setLevel", "warning"}
)


def run(body: Iterable[ast.stmt], scope: Scope) -> Any:
    """Go through statements; return what they return, `NOTHING` where they don't.

    Raises
    ------
    Unknown
        If that cannot be told.
    """
    for statement in body:
        given = _go_through(statement, scope)
        if given is not NOTHING:
            return given
    return NOTHING


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
            return run(node.body, scope)
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
    return NOTHING


def _choose(node: ast.If, scope: Scope) -> Any:
    try:
        is_so = values.truth(scope.value(node.test))
    except Unknown:
        _pass_over([*node.body, *node.orelse], scope)
        return NOTHING
    return run(node.body if is_so else node.orelse, scope)


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
