"""How a job's image would come to be, and what keeps it from that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.errors import ContextError, ImageError

# Here and not where they are used: two threads that import a package at once may wait for ever.
from distlaunch.image import plan_image
from distlaunch.image.context import paths
from distlaunch.image.registry.refusals import Unreachable
from distlaunch.job import vertex
from distlaunch.render.templates import REQUIREMENTS, recipe

if TYPE_CHECKING:
    from distlaunch.checks.problem import Problem
    from distlaunch.image import ImagePlan
    from distlaunch.submit.plan import Order


@dataclass(frozen=True, slots=True)
class ImageCheck:
    """How a job's image would come to be.

    Parameters
    ----------
    plan
        None where every pool names its own image, or there can be none.
    files
        The paths of the project's files in it, None where the project is of no concern.
    problems
        What speaks against it.
    is_asked
        Whether the registry has said what there is to send.
    """

    plan: ImagePlan | None = None
    files: frozenset[str] | None = None
    problems: tuple[Problem, ...] = ()
    is_asked: bool = True


def check_image(order: Order, *, offline: bool = False) -> ImageCheck:
    """Find out how a job's image would come to be.

    Parameters
    ----------
    order
        What is to be launched.
    offline
        Whether no registry is to be asked.
    """
    if not vertex.needs_image(order.job):
        return ImageCheck(_named(order))
    if offline or order.job.image.repository is None:
        return _planned(order, push=False)
    try:
        return _planned(order, push=True)
    except Unreachable as problem:
        base = order.job.image.base
        unreachable = warning(
            "registry-unreachable",
            "image.base" if base and base in str(problem) else "image.repository",
            str(problem),
            "'distlaunch submit' cannot do without it",
        )
        here = _planned(order, push=False)
        return replace(here, problems=(unreachable, *here.problems))


def _named(order: Order) -> ImagePlan | None:
    """Return the plan for an image that is there already, None where each pool has its own."""
    return plan_image(order.job, order.folder) if order.job.image.uri else None


def _planned(order: Order, *, push: bool) -> ImageCheck:
    try:
        made = plan_image(order.job, order.folder, push=push)
    except Unreachable:
        raise
    except ContextError as problem:
        refused = tuple(_refused(line) for line in problem.lines)
        return ImageCheck(None, _unread(order), refused)
    except ImageError as problem:
        return ImageCheck(None, _unread(order), (_refused(str(problem)),))
    files = made.context.files if made.context else ()
    return ImageCheck(made, frozenset(file.path for file in files), _large(made), is_asked=push)


def _refused(line: str) -> Problem:
    """Return the problem that a line of ours tells, which ends with the remedy."""
    told, _, remedy = line.partition("; ")
    where, colon, what = told.partition(": ")
    if not colon or " " in where:
        where, what = "image", told
    code = "module-missing" if where == "module" else "image-refused"
    return error(code, where, what, remedy or "mend that, or name an image with --image")


def _large(made: ImagePlan) -> tuple[Problem, ...]:
    told = made.context.report() if made.context else None
    if told is None:
        return ()
    what, _, remedy = told.rpartition("; ")
    return (warning("context-large", "image.include", what, remedy),)


def _unread(order: Order) -> frozenset[str] | None:
    """Return the paths of what would go into the image, where something keeps it from being made.

    None where the program itself is not there.
    """
    try:
        ignore = recipe(order.job, order.folder).ignore
    except ImageError:
        ignore = _said_to_go_in(order)
    return frozenset(paths(order.folder, ignore)) if ignore else None


def _said_to_go_in(order: Order) -> str:
    """Return an ignore file for what the job file names, nothing without the program itself."""
    image, package = order.job.image, order.job.module.partition(".")[0]
    program = [each for each in (package, f"{package}.py") if (order.folder / each).exists()]
    named = [*program, image.requirements or REQUIREMENTS, *image.include]
    return "\n".join(["*", *(f"!{each}" for each in named)]) if program else ""
