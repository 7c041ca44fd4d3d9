"""Rules for a project's code: the module is in the image, files parse, imports are available."""

from __future__ import annotations

import posixpath
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.requirements import installed_providers, pin, providers
from distlaunch.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    is_left_out: bool = False
    is_sure: bool = True


def module_problems(project: ProjectCode, module: str) -> Iterator[Problem]:
    """Yield why ``python -m MODULE`` would not find the program."""
    if module not in project.modules:
        if left_out := _left_out(project, module) or _left_out(project, f"{module}.__main__"):
            yield error("module-not-in-image", "module", left_out.what, left_out.remedy)
        else:
            what, remedy = f"no module {module}", _similar_module(project, module)
            yield error("module-missing", "module", what, remedy)
    elif project.is_package(module) and f"{module}.__main__" not in project.modules:
        names = _names_in(project, module)
        name = "task" if "task" in names else min(names, default="task")
        yield error(
            "module-missing",
            "module",
            f"{module} is a package without __main__.py, which Python cannot run",
            f"name a module in it, e.g. {module}.{name}",
        )


def syntax_problems(project: ProjectCode) -> Iterator[Problem]:
    """Yield the files that do not parse; those that nothing imports are warnings."""
    python = project.runtime.python
    for path, source in project.sources.items():
        if source.problem is None:
            continue
        line, column, message = source.problem
        make = error if path in project.reachable else warning
        remedy = f"'python -m py_compile {path}' shows the line"
        if python and python > sys.version_info[:2] and _may_be_newer(project.folder / path, line):
            make = warning
            remedy = f"run distlaunch with Python {python[0]}.{python[1]}, as in the image"
        elif path not in project.reachable:
            remedy += "; or exclude the file in .dockerignore"
        where = f"{path}:{line}:{column}"
        yield make("source-syntax", where, f"syntax error: {message}", remedy)


def _may_be_newer(path: Path, line: int) -> bool:
    """Return whether a line may have syntax that only a newer Python knows."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[line - 1 : line]
    return any(_NEWER.search(each) for each in lines)


def import_problems(project: ProjectCode) -> Iterator[Problem]:
    """Yield each missing module once, as an error if one of its imports is always executed."""
    imports = [
        (file, each, file in project.required and each.is_required)
        for file in sorted(project.reachable)
        for each in project.sources[file].imports
    ]
    reported: set[str] = set()
    for file, each, is_required in sorted(imports, key=lambda each: not each[2]):
        name = each.absolute_name(file)
        finding = _finding(project, file, name, each)
        if finding and finding.what not in reported:
            reported.add(finding.what)
            is_start = name is not None and f"{name}.{each.name}" in project.starts
            is_sure = finding.is_sure and (is_required or is_start)
            make = error if is_sure and not project.changes_path else warning
            code = "module-not-in-image" if finding.is_left_out else "import-missing"
            yield make(code, f"{file}:{each.line}", finding.what, finding.remedy)


def _finding(project: ProjectCode, file: str, name: str | None, each: Import) -> _Finding | None:
    if name and not each.level and name.partition(".")[0] not in project.modules:
        return _third_party(project, file, name, each.name)
    if name is None:
        module = "." * each.level + each.module
        return _Finding(
            f"relative import of {module!r} leads out of the package",
            "import from the project's folder, e.g. from trainer.data",
        )
    missing = _missing_module(project, name, each.name)
    if missing is None:
        return None
    package, _, last = missing.rpartition(".")
    near = did_you_mean(last, _names_in(project, package)).removeprefix("; ")
    return _left_out(project, missing) or _Finding(
        f"no module {missing}", near or "add the file, or fix the import"
    )


def _missing_module(project: ProjectCode, name: str, taken: str | None) -> str | None:
    """Return the module of an import that the project does not have, None if it has all."""
    if name not in project.modules:
        return name
    full = f"{name}.{taken}"
    is_missing = taken and not taken.startswith("__") and full not in project.modules
    return full if is_missing and project.is_namespace(name) else None


def _third_party(project: ProjectCode, file: str, name: str, taken: str | None) -> _Finding | None:
    top = name.partition(".")[0]
    module = f"{name}.{taken}" if taken else name
    if top in _STANDARD or _is_installed(project, module, name):
        return None
    if top == "distlaunch":
        return _Finding(
            "distlaunch is not in the image; it stays on the machine that submits",
            "copy the code that the program needs into the project",
        )
    distribution = providers(module)[0]
    package = posixpath.dirname(file).replace("/", ".")
    if f"{package}.{top}" not in project.modules:
        return _left_out(project, name) or _not_required(project, top, distribution)
    return _Finding(
        f"no module {top} in the folder that the program is started in",
        f"write 'from {package} import {top}'",
    )


def _not_required(project: ProjectCode, top: str, distribution: str) -> _Finding | None:
    """Return the finding for a module that no requirement provides, if the image is known."""
    runtime, requirements = project.runtime, project.requirements
    if requirements.refusal or not (runtime.is_plain or runtime.tensorflow_tag):
        return None
    shown = distribution if top == "google" else top
    add = f"add {pin(distribution, f' to {requirements.file}')}"
    if not project.unverified:
        return _Finding(f"no requirement provides {shown}", add, is_sure=runtime.is_plain)
    names = ", ".join(project.unverified[:_SHOWN]) + (", …" if project.unverified[_SHOWN:] else "")
    return _Finding(
        f"not verified that a requirement provides {shown}: {names} not installed here",
        f"{add}, or install the requirements here",
        is_sure=False,
    )


def _is_installed(project: ProjectCode, module: str, name: str) -> bool:
    """Return whether a requirement provides a module, or may by its name."""
    if not project.distributions.isdisjoint(providers(module)):
        return True  # without looking through all that is installed here, which takes long
    distributions = installed_providers(module) or installed_providers(name)
    if not project.distributions.isdisjoint(distributions):
        return True
    top = name.partition(".")[0].replace("_", "").lower()
    return any(top in each.replace("-", "").lower() for each in project.unverified)


def _left_out(project: ProjectCode, name: str) -> _Finding | None:
    """Return the finding for a module in the project's folder that is not in the image."""
    path = name.replace(".", "/")
    for candidate in (f"{path}.py", f"{path}/__init__.py", path):
        file = project.folder / candidate
        if file.is_file() if file.suffix else any(file.glob("*.py")):
            remedy = f"add {candidate.partition('/')[0]} to image.include in distlaunch.yaml"
            if project.runtime.own_ignore:
                remedy = f"allow {candidate} in .dockerignore"
            shown = candidate.removesuffix("/__init__.py")
            what = f"{shown} is in the project, but not in its image"
            return _Finding(what, remedy, is_left_out=True)
    return None


def _names_in(project: ProjectCode, package: str) -> list[str]:
    """Return the names of the modules in a package."""
    names = (each.rpartition(".") for each in project.modules)
    return [name for parent, _, name in names if parent == package and name != "__main__"]


def _similar_module(project: ProjectCode, module: str) -> str:
    """Return the remedy for a module that does not exist."""
    plain = module.removesuffix(".py").replace("/", ".")
    if plain != module and plain in project.modules:
        return f"write it as Python does: {plain}"
    files = [name for name in project.modules if not project.is_package(name)]
    near = did_you_mean(module, files).removeprefix("; ")
    return near or "name the module that 'python -m' is to run, e.g. trainer.task"
