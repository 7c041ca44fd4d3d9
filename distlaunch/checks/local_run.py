"""The checks of a project's code that a run on this machine needs: not those of its image."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from distlaunch.checks import source_location, trainer
from distlaunch.checks.problem import more_about
from distlaunch.checks.project import imports
from distlaunch.checks.project.image_runtime import ImageRuntime
from distlaunch.checks.project.requirements import ImageRequirements
from distlaunch.errors import Diagnostic, ProjectError
from distlaunch.image.context import paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.trainer import Trainer
    from distlaunch.job.launch import LaunchRequest

_NOT_READ = "**/.*\n**/site-packages\n**/node_modules"  # as in .dockerignore


@dataclass(frozen=True)
class _InstalledHere(ImageRequirements):
    """What is installed in this Python, in place of what an image would have."""

    def describe_missing(self, module: str, distribution: str) -> tuple[str, str]:
        remedy = f"run '{sys.executable} -m pip install {distribution}'"
        return f"{module} is not installed here", f"{remedy}, and add it to requirements.txt"

    def provide(self, modules: Sequence[str]) -> bool:
        return find_spec(modules[0].partition(".")[0]) is not None


def check_project(launch: LaunchRequest) -> tuple[tuple[Problem, ...], bool]:
    """Return the warnings about a project's code, and whether the trainer package trains.

    Raises
    ------
    ProjectError
        For what would end a run on this machine.
    """
    bundled = trainer.find_trainer(launch)
    problems = source_location.locate(_problems(launch, bundled), launch)
    errors = [each for each in problems if each.severity == "error"]
    if errors:
        raise ProjectError(
            hint=more_about(errors),
            problems=[
                Diagnostic(each.what, f"{each.remedy} [{each.code}]", each.where) for each in errors
            ],
        )
    return problems, bundled is not None or launch.job.is_script


def _problems(launch: LaunchRequest, bundled: Trainer | None) -> Iterator[Problem]:
    job, folder = launch.job, launch.folder
    runtime = ImageRuntime(None, None, is_plain=True)
    starts = imports.started_modules(job, folder, bundled)
    files = frozenset(paths(folder, _NOT_READ))
    path = job.env.get("PYTHONPATH", "")
    code = imports.ProjectCode(folder, files, starts, _InstalledHere(runtime), runtime, path)
    yield from imports.syntax_problems(code)
    if not any(each in path for each in "/$") and "PYTHONPATH" not in os.environ:
        yield from imports.start_problems(code, job)
    yield from trainer.script_problems(job)
    if bundled:
        yield from trainer.code_problems(bundled, job, folder)
