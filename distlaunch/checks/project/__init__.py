"""Rules for a project's code and requirements. Files are read, and nothing is executed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.checks.project import bundled_trainer, gpus, image_runtime, imports, requirements
from distlaunch.checks.trainer import TRAINER_LIBRARY

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

    `files` are the project's files in the image, as POSIX paths relative to the folder; None if the
    image cannot be built. `trainer` is None for another program than the bundled trainer.
    """
    job = order.job
    listed = requirements.load_requirements(job, order.folder, runtime)
    if files is not None:
        code = imports.ProjectCode(
            order.folder, files, _starts(job.module, trainer), listed, runtime
        )
        yield from imports.syntax_problems(code)
        if "PYTHONPATH" not in job.env and runtime.own is None:
            yield from imports.module_problems(code, job.module)
            yield from imports.import_problems(code)
    if runtime.own:
        yield from image_runtime.ignored_settings(runtime.own, job)
    if runtime.own is None or runtime.own.names(listed.file):
        yield from requirements.problems(listed)
    yield from gpus.build_problems(listed, request)
    if trainer:
        yield from bundled_trainer.problems(trainer, job, request, listed, order.folder)


def _starts(module: str, trainer: Trainer | None) -> tuple[str, ...]:
    """Return the modules that a program always imports."""
    names = ("model", "data", f"{TRAINER_LIBRARY}.run") if trainer else ()
    package = f"{trainer.package}." if trainer else ""
    return (module, f"{module}.__main__", *(f"{package}{name}" for name in names))
