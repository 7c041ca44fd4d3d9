"""A project's Python files in its image: how they parse, and what they import."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from distlaunch.checks.project import requirements

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.checks.project.requirements import ImageRequirements

_CHANGES_PATH = re.compile(rb"\bsys\.path\b|\baddsitedir\b|\bpath_hooks\b|\bmeta_path\b")
_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")
_IN_BASE = {"pip", "setuptools", "wheel"}


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


@dataclass(frozen=True)
class ProjectCode:
    """The Python files of a project in its image: `files` are paths relative to `folder`.

    `starts` are the modules that the program always imports.
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
    def sources(self) -> dict[str, Source]:
        """All Python files that can be read, parsed by this Python."""
        paths = (path for path in sorted(self.files) if path.endswith(".py"))
        return {path: read_source((self.folder / path).read_bytes()) for path in paths}

    @cached_property
    def required(self) -> set[str]:
        """The files that the program always imports."""
        return self._reachable(only_required=True)

    @cached_property
    def reachable(self) -> set[str]:
        """The files that the program may import."""
        return self._reachable(only_required=False)

    @cached_property
    def changes_path(self) -> bool:
        """Whether modules may be in folders that are not known here."""
        return any(self.sources[file].changes_path for file in self.reachable)

    @cached_property
    def distributions(self) -> set[str]:
        """The names of the distributions in the image, as far as they are known."""
        names = self.requirements.names - {""}
        if self.runtime.tensorflow_tag:
            names |= {"tensorflow", "tensorboard"}
        listed = self.requirements.installed
        installs = [each.requirement for each in listed if each.requirement]
        return _IN_BASE | requirements.with_dependencies(installs, names, self.runtime.markers)

    @cached_property
    def unverified(self) -> list[str]:
        """The requirements whose modules are not known, as they are not installed here."""
        names = [each.text for each in self.requirements.unreadable]
        for each in self.requirements.installed:
            specifier = each.requirement.specifier if each.requirement else None
            if specifier is None or not requirements.is_installed(each.name, specifier):
                names.append(each.name or each.text)
        dependencies = sorted(self.distributions - self.requirements.names - _IN_BASE)
        return names + [name for name in dependencies if not requirements.is_installed(name)]

    def is_package(self, name: str) -> bool:
        """Return whether a module is a folder."""
        path = self.modules[name]
        return path is None or path.endswith("/__init__.py")

    def is_namespace(self, name: str) -> bool:
        """Return whether a module is a package that defines nothing itself."""
        path = self.modules[name]
        return path is None or (self.is_package(name) and self.sources[path].is_empty)

    def _reachable(self, *, only_required: bool) -> set[str]:
        pending, reached, files = list(self.starts), set[str](), set[str]()
        while pending:
            name = pending.pop()
            path = self.modules.get(name)
            if not name or name in reached:
                continue
            reached.add(name)
            pending.append(name.rpartition(".")[0])
            if path in self.sources:
                files.add(path)
                for each in self.sources[path].imports:
                    target = each.absolute_name(path)
                    if target and (each.is_required or not only_required):
                        pending += [target, f"{target}.{each.name}"]
        return files


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
        return Source(SyntaxProblem(problem.lineno or 1, max(problem.offset or 1, 1), message))
    except ValueError:
        return Source(SyntaxProblem(1, 1, "contains a null byte"))
    except (RecursionError, MemoryError):
        return Source(SyntaxProblem(1, 1, "nested too deeply"))
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
