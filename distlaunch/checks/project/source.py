"""Parse Python files: syntax errors and imports."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_CHANGES_PATH = re.compile(rb"\bsys\.path\b|\baddsitedir\b|\bpath_hooks\b|\bmeta_path\b")
# Syntax of Python 3.11 and later: except*, type statements, type parameters, quotes in the braces
# of f-strings, stars in subscripts.
_NEWER = re.compile(
    r"except\s*\*|^\s*type\s+\w+|^\s*(async\s+)?(def|class)\s+\w+\s*\[|\b[rR]?[fF][rR]?[\"']|\[\s*\*"
)
_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")


class Import(NamedTuple):
    """An import of a module, or of one name from a module.

    `level` is the number of dots before the module. `is_required` is false in functions and in
    branches, which may not be executed.
    """

    line: int
    module: str
    level: int = 0
    name: str | None = None
    is_required: bool = True

    def absolute_name(self, file: str) -> str | None:
        """Return the module's full name in a file, None if its dots lead out of the package."""
        if not self.level:
            return self.module
        parts = file.split("/")[:-1]
        if len(parts) < self.level:
            return None
        package = parts[: len(parts) - self.level + 1]
        return ".".join([*package, self.module] if self.module else package)


class SyntaxProblem(NamedTuple):
    """Why a file does not parse."""

    line: int
    column: int
    message: str


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file.

    `imports` are without those whose failure the file handles. `is_empty` is whether it has no
    statement besides a docstring, `changes_path` whether it changes where modules are searched.
    """

    problem: SyntaxProblem | None = None
    imports: tuple[Import, ...] = ()
    is_empty: bool = False
    changes_path: bool = False


def read_source(text: bytes, python: tuple[int, int] | None = None) -> Source:
    """Parse a file, by default as this Python does; `python` may be an older version."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes in strings
            tree = ast.parse(text, feature_version=python)
            compile(tree, "file", "exec", dont_inherit=True)  # refuses `return` outside a function
            imports = tuple(_imports(tree.body, is_required=True))
    except SyntaxError as problem:
        message = " ".join(str(problem.msg).split())
        message = message[:1].lower() + message[1:]
        return Source(SyntaxProblem(problem.lineno or 1, max(problem.offset or 1, 1), message))
    except ValueError:
        return Source(SyntaxProblem(1, 1, "contains a null byte"))
    except (RecursionError, MemoryError):
        return Source(SyntaxProblem(1, 1, "nested too deeply"))
    is_empty = all(isinstance(each, ast.Expr) for each in tree.body)
    return Source(None, imports, is_empty, _CHANGES_PATH.search(text) is not None)


def may_be_newer(text: bytes, line: int) -> bool:
    """Return whether a line may have syntax that only a newer Python knows."""
    lines = text.decode(errors="replace").split("\n")[line - 1 : line]
    return any(_NEWER.search(each) for each in lines)


def _imports(body: Iterable[ast.stmt], *, is_required: bool) -> Iterator[Import]:
    for statement in body:
        match statement:
            case ast.Import():
                for alias in statement.names:
                    yield Import(statement.lineno, alias.name, is_required=is_required)
            case ast.ImportFrom():
                for alias in statement.names:
                    name = None if alias.name == "*" else alias.name
                    module, level = statement.module or "", statement.level
                    yield Import(statement.lineno, module, level, name, is_required)
            case _:
                nested, is_executed = _nested(statement)
                yield from _imports(nested, is_required=is_required and is_executed)


def _nested(statement: ast.stmt) -> tuple[list[ast.stmt], bool]:
    """Return the statements in a statement, and whether they are always executed.

    Those in which a failed import is handled are left out.
    """
    match statement:
        case ast.Try() if _handles_import_errors(statement):
            return [*statement.orelse, *statement.finalbody], True
        case ast.Try():
            return [*statement.body, *statement.orelse, *statement.finalbody], True
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            return statement.orelse, True
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))) | ast.ClassDef():
            return statement.body, True
        case ast.With():
            suppresses = any("suppress(" in ast.unparse(item) for item in statement.items)
            return ([] if suppresses else statement.body), True
    blocks = [getattr(statement, field, ()) for field in ("body", "orelse")]
    blocks += [case.body for case in getattr(statement, "cases", ())]
    return [each for block in blocks for each in block], False


def _handles_import_errors(statement: ast.Try) -> bool:
    types = [handler.type for handler in statement.handlers]
    names = [
        ast.unparse(each)
        for handled in types
        if handled
        for each in (handled.elts if isinstance(handled, ast.Tuple) else [handled])
    ]
    return None in types or any(name in _IMPORT_ERRORS for name in names)
