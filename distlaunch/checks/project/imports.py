"""Rules for a project's code: the module is in the image, files parse, imports are available."""

from __future__ import annotations

import posixpath
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.image_runtime import tensorflow_tag
from distlaunch.checks.project.requirements import pin, providers
from distlaunch.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.project_code import Import, ProjectCode

_STANDARD = sys.stdlib_module_names | {"__main__", "tomllib"}  # since Python 3.11
# Syntax of Python 3.11 and later: except*, type statements, type parameters, quotes in f-strings.
_NEWER = re.compile(
    r"except\s*\*|^\s*type\s+\w+|^\s*(async\s+)?(def|class)\s+\w+\s*\[|\b[rR]?[fF][rR]?[\"']"
)
_SHOWN = 3  # names in a message


class _Finding(NamedTuple):
    """A problem of an import before its severity is known."""

    what: str
    remedy: str
    code: str = "import-missing"
    is_sure: bool = True


def module_problems(project: ProjectCode, module: str) -> Iterator[Problem]:
    """Yield why ``python -m MODULE`` would not find the program."""
    if module not in project.modules:
        left_out = _left_out(project, module) or _left_out(project, f"{module}.__main__")
        files = [name for name in project.modules if not project.is_package(name)]
        near = did_you_mean(module, files).removeprefix("; ")
        remedy = near or "name the module that 'python -m' is to run, e.g. trainer.task"
        finding = left_out or _Finding(f"no module {module}", remedy, "module-missing")
        yield error(finding.code, "module", finding.what, finding.remedy)
    elif project.is_package(module) and f"{module}.__main__" not in project.modules:
        names = project.names_in(module)
        name = "task" if "task" in names else min(names, default="task")
        yield error(
            "module-missing",
            "module",
            f"{module} is a package without __main__.py, which Python cannot run",
            f"name a module in it, e.g. {module}.{name}",
        )


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
            is_sure = finding.is_sure and (is_required or is_start)
            make = error if is_sure and not project.changes_path else warning
            yield make(finding.code, f"{file}:{each.line}", finding.what, finding.remedy)


def _finding(project: ProjectCode, file: str, name: str | None, each: Import) -> _Finding | None:
    if name is None:
        module = "." * each.level + each.module
        return _Finding(
            f"relative import of {module!r} leads out of the package",
            "import from the project's folder, e.g. from trainer.data",
        )
    if not each.level and name.partition(".")[0] not in project.modules:
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
    return _left_out(project, missing) or _Finding(f"no module {missing}", remedy)


def _third_party(project: ProjectCode, file: str, name: str, taken: str | None) -> _Finding | None:
    top = name.partition(".")[0]
    modules = [f"{name}.{taken}", name] if taken else [name]
    if top in _STANDARD or project.requirements.provide(modules):
        return None
    if top == "distlaunch":
        return _Finding(
            "distlaunch is not in the image; it stays on the machine that submits",
            "copy the code that the program needs into the project",
        )
    package = posixpath.dirname(file).replace("/", ".")
    if f"{package}.{top}" in project.modules:
        return _Finding(
            f"no module {top} in the folder that the program is started in",
            f"write 'from {package} import {top}'",
        )
    return _left_out(project, name) or _not_required(project, top, providers(modules[0])[0])


def _not_required(project: ProjectCode, top: str, distribution: str) -> _Finding | None:
    """Return the finding for a module that no requirement provides, if the image is known."""
    runtime, requirements = project.runtime, project.requirements
    if requirements.refusal or not (runtime.is_plain or tensorflow_tag(runtime.base)):
        return None
    shown = distribution if top == "google" else top
    add = f"add {pin(distribution, f' to {requirements.file}')}"
    unverified = requirements.unverified
    if not unverified:
        return _Finding(f"no requirement provides {shown}", add, is_sure=runtime.is_plain)
    names = ", ".join(unverified[:_SHOWN]) + (", …" if unverified[_SHOWN:] else "")
    what = f"not verified that a requirement provides {shown}: {names} not installed here"
    return _Finding(what, f"{add}, or install the requirements here", is_sure=False)


def _left_out(project: ProjectCode, name: str) -> _Finding | None:
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
            return _Finding(what, remedy, "module-not-in-image")
    return None
