"""How a job's image would be made, and what keeps it from being made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.checks.project import dockerfile
from distlaunch.errors import ImageError
from distlaunch.image import plan_image
from distlaunch.image.build import build_secrets
from distlaunch.image.cloud_build import secrets_refusal
from distlaunch.image.context import paths
from distlaunch.image.plan import BuildStrategy
from distlaunch.image.recipe import read_recipe
from distlaunch.image.registry import RegistryUnreachable
from distlaunch.job import vertex

if TYPE_CHECKING:
    from distlaunch.checks.problem import Problem
    from distlaunch.errors import Diagnostic
    from distlaunch.image import ImagePlan
    from distlaunch.job.launch import LaunchRequest

_REGISTRY_TIMEOUT = 8.0  # seconds for all look-ups of the bases, and for those of the image


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


def check_image(launch: LaunchRequest, *, offline: bool = False) -> ImageCheck:
    """Return how a job's image would be made; nothing is built."""
    job, push = launch.job, not offline and launch.job.image.repository is not None
    if not vertex.needs_image(job):
        return ImageCheck(plan_image(job, launch.folder) if job.image.uri else None)
    problems: list[Problem] = []
    try:
        try:
            plan = plan_image(job, launch.folder, push=push, timeout=_REGISTRY_TIMEOUT)
        except RegistryUnreachable as problem:
            push = False
            where = "image.base" if job.image.base and problem.is_of_base else "image.repository"
            remedy = "'distlaunch submit' needs it"
            problems.append(warning("registry-unreachable", where, str(problem), remedy))
            plan = plan_image(job, launch.folder, push=False, context=problem.context)
    except ImageError as refusal:
        problems += map(_refusal, refusal.problems)
        return ImageCheck(None, _files_of_recipe(launch), tuple(problems))
    if plan.inputs is None:
        return ImageCheck(plan, frozenset(), tuple(problems), registry_contacted=push)
    context = plan.inputs.context
    files = frozenset(file.path for file in context.files)
    problems += dockerfile.image_problems(job, plan.inputs)
    is_full_build = plan.strategy in (BuildStrategy.CLOUD_BUILD, BuildStrategy.DOCKER)
    in_cloud = is_full_build and job.image.builder == "cloud-build"
    if mounted := build_secrets(plan.inputs) if in_cloud else {}:
        secret = secrets_refusal(mounted)
        problems.append(error("cloud-build-secrets", secret.where, secret.what, secret.remedy))
    if large := context.report():
        problems.append(warning("context-large", "image.include", large.what, large.remedy))
    if pointers := context.lfs_pointers:
        what = f"is a pointer of Git LFS, without the content ({len(pointers)} such files)"
        problems.append(warning("lfs-pointer", pointers[0], what, "run 'git lfs pull'"))
    return ImageCheck(plan, files, tuple(problems), registry_contacted=push)


def _refusal(refusal: Diagnostic) -> Problem:
    """Return the problem of an image that cannot be made."""
    missing = {"module": "module", "script": "script", "script_module": "module"}
    is_program = refusal.where in missing
    code = f"{missing[refusal.where]}-missing" if is_program else "image-refused"
    remedy = refusal.remedy or "fix it, or name an image with --image"
    return error(code, refusal.where or "image", refusal.what, remedy)


def _files_of_recipe(launch: LaunchRequest) -> frozenset[str] | None:
    """Return the files that would be in an image that cannot be made, None if that is unknown."""
    try:
        return frozenset(paths(launch.folder, read_recipe(launch.job, launch.folder).ignore))
    except ImageError:
        return None
