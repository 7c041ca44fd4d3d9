"""A project's Python files in its image: how they parse, and what they import."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.checks.project.requirements import ImageRequirements

_CHANGES_PATH = re.compile(rb"\bsys\.path\b|\baddsitedir\b|\bpath_hooks\b|\bmeta_path\b")
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


class Source(NamedTuple):
    """A Python file.

    `problem` is the line, the column and the message of a syntax error. `imports` are without those
    whose failure the file handles. `is_empty` is whether it has no statement besides a docstring,
    `changes_path` whether it changes where modules are searched.
    """

    problem: tuple[int, int, str] | None = None
    imports: tuple[Import, ...] = ()
    is_empty: bool = False
    changes_path: bool = False


@dataclass(frozen=True)
class ProjectCode:
    """The Python files of a project in its image: `files` are paths relative to `folder`.

    `starts` are the modules that the program always imports. Only the files that it may import are
    read: the others do not keep it from running.
    """

    folder: Path
    files: Collection[str]
    starts: tuple[str, ...]
    requirements: ImageRequirements
    runtime: ImageRuntime

    @cached_property
    def modules(self) -> dict[str, str | None]:
        """The files of all modules by name, None for a folder without ``__init__.py``."""
        modules: dict[str, str | None] = {}
        for path in sorted(self.files):
            if path.endswith((".py", ".so")):
                name = path.partition(".")[0].removesuffix("/__init__").replace("/", ".")
                modules[name] = path
                while name := name.rpartition(".")[0]:
                    modules.setdefault(name, None)
        return modules

    @cached_property
    def source(self) -> Callable[[str], Source]:
        """Returns a file as this Python parses it."""
        return cache(lambda path: read_source((self.folder / path).read_bytes()))

    @cached_property
    def reachable(self) -> dict[str, bool]:
        """The Python files that the program may import, and whether it always does."""
        required, optional = list(self.starts), list[str]()
        seen, files = set[str](), dict[str, bool]()
        while required or optional:
            is_required = bool(required)
            name = (required or optional).pop()
            path = self.modules.get(name)
            if not name or name in seen:
                continue
            seen.add(name)
            (required if is_required else optional).append(name.rpartition(".")[0])
            if path and path.endswith(".py"):
                files[path] = is_required
                for each in self.source(path).imports:
                    if target := each.absolute_name(path):
                        names = required if is_required and each.is_required else optional
                        names += [target, f"{target}.{each.name}"]
        return dict(sorted(files.items()))

    @cached_property
    def changes_path(self) -> bool:
        """Whether modules may be in folders that are not known here."""
        return any(self.source(path).changes_path for path in self.reachable)

    def is_package(self, name: str) -> bool:
        """Return whether a module is a folder."""
        path = self.modules[name]
        return path is None or path.endswith("/__init__.py")

    def is_namespace(self, name: str) -> bool:
        """Return whether a module is a package that defines nothing itself."""
        path = self.modules[name]
        return path is None or (self.is_package(name) and self.source(path).is_empty)

    def names_in(self, package: str) -> list[str]:
        """Return the names of the modules in a package."""
        names = (each.rpartition(".") for each in self.modules)
        return [name for parent, _, name in names if parent == package and name != "__main__"]


def read_source(text: bytes) -> Source:
    """Parse a file as this Python does."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes in strings
            tree = ast.parse(text)
            compile(tree, "file", "exec", dont_inherit=True)  # refuses `return` outside a function
            imports = tuple(_imports(tree.body, is_required=True))
    except SyntaxError as problem:
        message = " ".join(str(problem.msg).split())
        message = message[:1].lower() + message[1:]
        return Source((problem.lineno or 1, max(problem.offset or 1, 1), message))
    except ValueError:
        return Source((1, 1, "contains a null byte"))
    except (RecursionError, MemoryError):
        return Source((1, 1, "nested too deeply"))
    is_empty = all(isinstance(each, ast.Expr) for each in tree.body)
    return Source(None, imports, is_empty, _CHANGES_PATH.search(text) is not None)


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
        case ast.Try():
            body = [] if _handles_import_errors(statement) else statement.body
            return [*body, *statement.orelse, *statement.finalbody], True
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
    words = [word for each in types if each for word in re.findall(r"\w+", ast.unparse(each))]
    return None in types or not set(words).isdisjoint(_IMPORT_ERRORS)
