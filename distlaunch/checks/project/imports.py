"""Rules for a project's code: the module is in the image, files parse, imports are available.

Only files that the program may import are read: the others do not keep it from running.
"""

from __future__ import annotations

import ast
import itertools
import posixpath
import re
import sys
import warnings
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.image_runtime import tensorflow_tag
from distlaunch.checks.project.requirements import providers
from distlaunch.errors import did_you_mean
from distlaunch.resources import TRAINER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

    from distlaunch.checks.problem import Problem, Severity
    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.checks.project.requirements import ImageRequirements
    from distlaunch.checks.trainer import Trainer
    from distlaunch.job.model import Job

_STANDARD = sys.stdlib_module_names | {"__main__", "tomllib"}  # since Python 3.11
# Syntax of Python 3.11 and later: except*, type statements, type parameters, quotes in f-strings.
_NEWER = re.compile(
    r"except\s*\*|^\s*type\s+\w+|^\s*(async\s+)?(def|class)\s+\w+\s*\[|\b[rR]?[fF][rR]?[\"']"
)
_SHOWN = 3  # names in a message
_CHANGES_PATH = re.compile(rb"\bsys\.path\b|\baddsitedir\b|\bpath_hooks\b|\bmeta_path\b")
_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")


class Import(NamedTuple):
    """An import of a module, or of one name from a module."""

    line: int
    module: str
    level: int = 0  # the number of dots before the module
    name: str | None = None
    is_required: bool = True  # not in functions and in branches, which may not be executed

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
    """A Python file."""

    problem: tuple[int, int, str] | None = None  # line, column and message of a syntax error
    imports: tuple[Import, ...] = ()  # without those whose failure the file handles
    is_empty: bool = False  # has no statement besides a docstring
    changes_path: bool = False  # changes where modules are searched


@dataclass(frozen=True)
class ProjectCode:
    """The Python files of a project in its image: `files` are paths relative to `folder`.

    `starts` are the modules that the program always imports. `python_path` is the image's.
    """

    folder: Path
    files: Collection[str]
    starts: tuple[str, ...]
    requirements: ImageRequirements
    runtime: ImageRuntime
    python_path: str = ""

    @cached_property
    def modules(self) -> dict[str, str | None]:
        """The files of all modules by name, None for a folder without ``__init__.py``."""
        modules: dict[str, str | None] = {}
        roots = ["", *(f"{folder}/" for folder in self.python_path.split(":"))]
        for root, path in itertools.product(roots, sorted(self.files)):
            if path.startswith(root) and path.endswith((".py", ".so")):
                name = path.removeprefix(root).partition(".")[0].removesuffix("/__init__")
                name = name.replace("/", ".")
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

    def is_own(self, name: str) -> bool:
        """Return whether a module would be one of the project's, even if it is missing."""
        return name.partition(".")[0] in self.modules

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


def started_modules(job: Job, folder: Path, bundled: Trainer | None) -> tuple[str, ...]:
    """Return the modules that a job's program always imports."""
    start = script_module(job.script) if job.script else job.script_module or job.module
    starts = [start, f"{start}.__main__"]
    if bundled:
        starts += [f"{bundled.package}.{name}" for name in ("model", "data")]
        if bundled.library.is_relative_to(folder):
            copy = bundled.library.relative_to(folder)
            starts.append(".".join((*copy.parts, "run")))
    return tuple(starts)


def start_problems(project: ProjectCode, job: Job) -> Iterator[Problem]:
    """Yield why a job's program would not start."""
    if job.script:
        yield from script_problems(project, job.script)
    elif job.script_module:
        yield from module_problems(project, job.script_module, "script_module")
    else:
        yield from module_problems(project, job.module, "module")
    if "/" not in (job.script or ""):  # a script imports from its own folder
        yield from import_problems(project)


def module_problems(project: ProjectCode, module: str, key: str) -> Iterator[Problem]:
    """Yield why ``python -m MODULE`` would not find the program, which `key` names."""
    if module not in project.modules:
        left_out = _left_out(project, module) or _left_out(project, f"{module}.__main__")
        files = [name for name in project.modules if not project.is_package(name)]
        near = did_you_mean(module, files).removeprefix("; ")
        top = module.partition(".")[0]
        is_unknown = not left_out and not near and top not in project.modules
        listed = project.requirements
        if is_unknown and (listed.provide([module]) or any(each.url for each in listed.installed)):
            return
        remedy = near or "name the module that 'python -m' is to run, e.g. trainer.task"
        missing = left_out or error("module-missing", "", f"no module {module}", remedy)
        yield replace(missing, where=key)
    elif project.is_package(module) and f"{module}.__main__" not in project.modules:
        names = project.names_in(module)
        name = "task" if "task" in names else min(names, default="task")
        what = f"{module} is a package without __main__.py, which Python cannot run"
        remedy = f"name a module in it, e.g. {module}.{name}"
        yield error("module-missing", key, what, remedy)


def script_module(script: str) -> str:
    """Return the name in `ProjectCode.modules` of a script's path."""
    return script.removesuffix(".py").replace("/", ".")


def script_problems(project: ProjectCode, script: str) -> Iterator[Problem]:
    """Yield why the script would not be there in the image."""
    if script not in project.files:
        near = did_you_mean(script, [path for path in project.files if path.endswith(".py")])
        remedy = near.removeprefix("; ") or "name the Python file to run, e.g. train.py"
        place = " in the image" if (project.folder / script).is_file() else ""
        yield error("script-missing", "script", f"no file {script}{place}", remedy)
        return
    relative = [each for each in project.source(script).imports if each.level and each.is_required]
    for each in relative[:1]:
        what = "a relative import, and a script is in no package"
        remedy = f"write script_module: {script_module(script)} in place of script"
        yield error("import-missing", f"{script}:{each.line}", what, remedy)


def syntax_problems(project: ProjectCode) -> Iterator[Problem]:
    """Yield the files that the program may import and that do not parse."""
    python = project.runtime.python
    for path in project.reachable:
        problem = project.source(path).problem
        if problem is None:
            continue
        line, column, message = problem
        make, remedy = error, f"'python -m py_compile {path}' shows the line"
        if python and python > sys.version_info[:2]:
            lines = (project.folder / path).read_text(encoding="utf-8", errors="replace")
            if any(map(_NEWER.search, lines.split("\n")[line - 1 : line])):
                make = warning
                remedy = f"run distlaunch with Python {python[0]}.{python[1]}, as in the image"
        where = f"{path}:{line}:{column}"
        yield make("source-syntax", where, f"syntax error: {message}", remedy)


def import_problems(project: ProjectCode) -> Iterator[Problem]:
    """Yield each missing module once, as an error if one of its imports is always executed."""
    imports = [
        (file, each, is_required and each.is_required)
        for file, is_required in project.reachable.items()
        for each in project.source(file).imports
    ]
    reported: set[str] = set()
    for file, each, is_required in sorted(imports, key=lambda each: not each[2]):
        name = each.absolute_name(file)
        finding = _finding(project, file, name, each)
        if finding and finding.what not in reported:
            reported.add(finding.what)
            is_start = f"{name}.{each.name}" in project.starts
            is_sure = finding.severity == "error" and (is_required or is_start)
            severity: Severity = "error" if is_sure and not project.changes_path else "warning"
            yield replace(finding, where=f"{file}:{each.line}", severity=severity)


def _finding(project: ProjectCode, file: str, name: str | None, each: Import) -> Problem | None:
    """Return the problem of an import, without its location."""
    if name is None:
        module = "." * each.level + each.module
        return _missing(
            f"relative import of {module!r} leads out of the package",
            "import from the project's folder, e.g. from trainer.data",
        )
    if not each.level and not project.is_own(name):
        return _third_party(project, file, name, each.name)
    full = f"{name}.{each.name}"
    if name not in project.modules:
        missing = name
    elif (
        each.name
        and not each.name.startswith("__")
        and full not in project.modules
        and project.is_namespace(name)
    ):
        missing = full
    else:
        return None
    package, _, last = missing.rpartition(".")
    near = did_you_mean(last, project.names_in(package)).removeprefix("; ")
    remedy = near or "add the file, or fix the import"
    return _left_out(project, missing) or _missing(f"no module {missing}", remedy)


def _third_party(project: ProjectCode, file: str, name: str, taken: str | None) -> Problem | None:
    top = name.partition(".")[0]
    modules = [f"{name}.{taken}", name] if taken else [name]
    if top in _STANDARD or top == TRAINER or project.requirements.provide(modules):
        return None
    if top == "distlaunch":
        return _missing(
            "distlaunch is not in the image; it stays on the machine that submits",
            "copy the code that the program needs into the project",
        )
    package = posixpath.dirname(file).replace("/", ".")
    if f"{package}.{top}" in project.modules:
        return _missing(
            f"no module {top} in the folder that the program is started in",
            f"write 'from {package} import {top}'",
        )
    return _left_out(project, name) or _not_required(project, top, providers(modules[0])[0])


def _not_required(project: ProjectCode, top: str, distribution: str) -> Problem | None:
    """Return the finding for a module that no requirement provides, if the image is known."""
    runtime, requirements = project.runtime, project.requirements
    if requirements.refusal or not (runtime.is_plain or tensorflow_tag(runtime.base)):
        return None
    shown = distribution if top == "google" else top
    missing, add = requirements.describe_missing(shown, distribution)
    unverified = requirements.unverified
    if not unverified:
        return _missing(missing, add, is_sure=runtime.is_plain)
    names = ", ".join(unverified[:_SHOWN]) + (", …" if unverified[_SHOWN:] else "")
    what = f"not verified that a requirement provides {shown}: {names} not installed here"
    return _missing(what, f"{add}, or install the requirements here", is_sure=False)


def _missing(what: str, remedy: str, *, is_sure: bool = True) -> Problem:
    return (error if is_sure else warning)("import-missing", "", what, remedy)


def _left_out(project: ProjectCode, name: str) -> Problem | None:
    """Return the finding for a module in the project's folder that is not in the image."""
    path = name.replace(".", "/")
    for candidate in (f"{path}.py", f"{path}/__init__.py", path):
        file = project.folder / candidate
        if file.is_file() if file.suffix else any(file.glob("*.py")):
            remedy = f"add {candidate.partition('/')[0]} to image.include in distlaunch.yaml"
            if project.runtime.own_ignore:
                remedy = f"allow {candidate} in .dockerignore"
            what = (
                f"{candidate.removesuffix('/__init__.py')} is in the project, but not in its image"
            )
            return error("module-not-in-image", "", what, remedy)
    return None
