"""Rules for a project's code and requirements. Files are read, and nothing is executed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.checks.project import (
    arguments,
    bundled_trainer,
    dockerfile,
    imports,
    requirements,
    tensorflow,
)
from distlaunch.checks.project.project_code import ProjectCode
from distlaunch.checks.trainer import TRAINER_LIBRARY, program_arguments

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.checks.request_view import JobRequest
    from distlaunch.checks.trainer import Trainer
    from distlaunch.submit.plan import LaunchRequest


def problems(
    order: LaunchRequest,
    request: JobRequest,
    runtime: ImageRuntime,
    files: Collection[str] | None,
    trainer: Trainer | None,
) -> Iterator[Problem]:
    """Yield the problems of a project whose image is built.

    Parameters
    ----------
    order
        The job and its folder.
    request
        The job's request.
    runtime
        What is known of the image.
    files
        The paths of the project's files in the image, posix and relative to the folder; None if
        the image cannot be built.
    trainer
        The bundled trainer, None for another program.
    """
    job = order.job
    listed = requirements.load_requirements(job, order.folder, runtime)
    if files is not None:
        code = ProjectCode(order.folder, files, _starts(job.module, trainer), listed, runtime)
        yield from imports.syntax_problems(code)
        if "PYTHONPATH" not in job.env:
            if runtime.own is None:
                yield from imports.module_problems(code, job.module)
            if runtime.own is None or runtime.is_plain:
                yield from imports.import_problems(code)
    if runtime.own:
        yield from dockerfile.ignored_settings(runtime.own, job)
    if runtime.installs_requirements:
        yield from requirements.problems(listed)
    yield from tensorflow.problems(listed, request, runtime)
    if trainer:
        yield from bundled_trainer.problems(trainer, job, request, listed, order.folder)
        task = order.folder.joinpath(*job.module.split(".")).with_suffix(".py")
        yield from arguments.problems(program_arguments(job) or (), job, task)


def _starts(module: str, trainer: Trainer | None) -> tuple[str, ...]:
    """Return the modules that a program always imports."""
    names = ("model", "data", f"{TRAINER_LIBRARY}.run") if trainer else ()
    package = f"{trainer.package}." if trainer else ""
    return (module, f"{module}.__main__", *(f"{package}{name}" for name in names))
