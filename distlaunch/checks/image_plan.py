"""How a job's image would be made, and why it cannot be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.errors import ContextError, ImageError

# Imported before any thread starts: two threads that import one package can deadlock.
from distlaunch.image import plan_image
from distlaunch.image.context import paths
from distlaunch.image.registry.errors import RegistryUnreachable
from distlaunch.job import vertex
from distlaunch.render.templates import recipe

if TYPE_CHECKING:
    from distlaunch.checks.problem import Problem
    from distlaunch.image import ImagePlan
    from distlaunch.submit.plan import LaunchRequest


@dataclass(frozen=True, slots=True)
class ImageCheck:
    """How a job's image would be made.

    `files` are the project's files in it, None where they are unknown, and `registry_contacted` is
    whether `plan` takes into account what the registry has.
    """

    plan: ImagePlan | None = None
    files: frozenset[str] | None = None
    problems: tuple[Problem, ...] = ()
    registry_contacted: bool = True


def check_image(order: LaunchRequest, *, offline: bool = False) -> ImageCheck:
    """Return how a job's image would be made; nothing is built."""
    job = order.job
    if not vertex.needs_image(job):
        return ImageCheck(plan_image(job, order.folder, recipe) if job.image.uri else None)
    if offline or job.image.repository is None:
        return _planned(order, push=False)
    try:
        return _planned(order, push=True)
    except RegistryUnreachable as problem:
        base = job.image.base
        unreachable = warning(
            "registry-unreachable",
            "image.base" if base and base in str(problem) else "image.repository",
            str(problem),
            "'distlaunch submit' needs it",
        )
        planned = _planned(order, push=False)
        return replace(planned, problems=(unreachable, *planned.problems))


def _planned(order: LaunchRequest, *, push: bool) -> ImageCheck:
    try:
        planned = plan_image(order.job, order.folder, recipe, push=push)
    except RegistryUnreachable:
        raise
    except (ContextError, ImageError) as problem:
        lines = problem.lines if isinstance(problem, ContextError) else (str(problem),)
        return ImageCheck(None, _files_of_recipe(order), tuple(map(_refusal, lines)))
    context = planned.context
    files = frozenset(file.path for file in context.files) if context else frozenset()
    large = context.report() if context else None
    return ImageCheck(
        planned, files, (_large_context(large),) if large else (), registry_contacted=push
    )


def _refusal(line: str) -> Problem:
    """Return the problem of an error's line, ``LOCATION: MESSAGE; REMEDY``."""
    text, _, remedy = line.partition("; ")
    location, colon, message = text.partition(": ")
    if not colon or " " in location:
        location, message = "image", text
    code = "module-missing" if location == "module" else "image-refused"
    return error(code, location, message, remedy or "fix it, or name an image with --image")


def _large_context(note: str) -> Problem:
    message, _, remedy = note.rpartition("; ")
    return warning("context-large", "image.include", message, remedy)


def _files_of_recipe(order: LaunchRequest) -> frozenset[str] | None:
    """Return the files that would be in an image that cannot be made, None if that is unknown."""
    try:
        return frozenset(paths(order.folder, recipe(order.job, order.folder).ignore))
    except ImageError:
        return None
