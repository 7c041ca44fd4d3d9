"""The files that a job without an image needs: those of the image, and the trainer package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch import resources
from distlaunch.engines.code_files import CodeFile, CodeFiles
from distlaunch.image.context import read_context
from distlaunch.image.recipe import read_recipe
from distlaunch.resources import TRAINER

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.job.model import Job


def read_code(job: Job, folder: Path) -> CodeFiles:
    """Return the files of a project's image and the trainer package, unless a copy is among them.

    ImageError is raised for files that must not leave the project, such as keys.
    """
    context = read_context(folder, read_recipe(job, folder).ignore)
    files = [
        CodeFile(
            each.path,
            each.mode,
            None if each.is_folder or each.target is not None else folder / each.path,
            each.target,
            each.digest,
        )
        for each in context.entries
    ]
    if not any(file.path == f"{TRAINER}/__init__.py" for file in files):
        package = CodeFiles.in_folder(resources.trainer_package())
        files += [
            file._replace(path=f"{TRAINER}/{file.path}")
            for file in package.files
            if "__pycache__" not in file.path
        ]
    return CodeFiles(tuple(files))
