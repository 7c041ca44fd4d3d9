"""Whether a job's program is there, and can be read by Python."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import Surroundings
    from distlaunch.checks.project.modules import Modules
    from distlaunch.checks.project.sources import Sources
    from distlaunch.submit.plan import LaunchRequest


def entry(order: LaunchRequest, modules: Modules, around: Surroundings) -> Iterator[Problem]:
    """Yield why ``python -m MODULE`` would find nothing to run."""
    name = order.job.module
    found = modules.find(name)
    if found is None:
        path = name.replace(".", "/")
        there = [each for each in (f"{path}.py", f"{path}/__main__.py") if _is(order, each)]
        yield _left_out(there[0], around) if there else _missing(name, modules)
    elif found.is_package and modules.find(f"{name}.__main__") is None:
        within = modules.below(name)
        one = "task" if "task" in within else next(iter(within), "task")
        yield error(
            "module-missing",
            "module",
            f"{name} is a package without __main__.py, which is not run",
            f"name a module of it, as {name}.{one}",
        )


def broken(
    modules: Modules,
    sources: Sources,
    is_needed: Callable[[str], bool],
    around: Surroundings,
) -> Iterator[Problem]:
    """Yield the files that do not parse.

    Parameters
    ----------
    is_needed
        Whether the program imports a file; what it never does may be meant for something else.
    """
    here = sys.version_info[:2]
    for path in sorted(modules.python):
        problem = sources.verdict(path)
        if problem is None:
            continue
        line, said = problem
        remedy = f"'python -m py_compile {path}' shows the place"
        if around.python and around.python > here and sources.may_be_newer(path, line):
            remedy = f"run distlaunch with Python {_dotted(around.python)}, which the image has"
            make = warning
        elif is_needed(path):
            make = error
        else:
            remedy += "; or leave it out in .dockerignore"
            make = warning
        yield make("source-syntax", f"{path}:{line}", f"Python cannot read it: {said}", remedy)


def _is(order: LaunchRequest, path: str) -> bool:
    return (order.folder / path).is_file()


def _left_out(path: str, around: Surroundings) -> Problem:
    return error(
        "module-not-in-image",
        "module",
        f"{path} is in the project, but not in its image",
        f"let {path} in in .dockerignore"
        if around.own_ignore
        else f"add {path.partition('/')[0]} to image.include in distlaunch.yaml",
    )


def _missing(name: str, modules: Modules) -> Problem:
    plain = name.removesuffix(".py").replace("/", ".")
    files = sorted(path for path in modules.python if not path.endswith("__init__.py"))
    known = [modules.name_of(path) for path in files]
    if plain != name and plain in known:
        remedy = f"name it as Python does: {plain}"
    else:
        remedy = did_you_mean(name, known).removeprefix("; ") or (
            "name the module that 'python -m' is to run, as trainer.task"
        )
    return error("module-missing", "module", f"there is no module {name}", remedy)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
