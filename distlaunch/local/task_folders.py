"""The working folders of a script's tasks: the project for the chief, and a view of it for others.

In the cloud each task has a disk of its own. A script whose tasks look for files of each other, or
write the same file, is to behave here as it does there.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from distlaunch import files
from distlaunch.errors import DistlaunchError, os_reason
from distlaunch.job.model import FIT_MODULE
from distlaunch.local.run_folder import RUN_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from distlaunch.job.tasks import Task
    from distlaunch.local.run_plan import RunSpec

_LARGE_FILE = 1 << 20  # bytes from which a file is linked: it is data, and no source
_MANY_FILES = 1_000  # from which a folder is linked
_LEFT_OUT = ("pyvenv.cfg", RUN_RECORD)  # in environments of Python, and in job folders


def task_folders(spec: RunSpec, tasks: Iterable[Task]) -> dict[Task, Path]:
    """Return where each task runs; views of an earlier attempt are replaced.

    DistlaunchError is raised if a view cannot be made.
    """
    tasks = list(tasks)
    program = spec.program
    is_script = program.kind == "module" and program.words[0] == FIT_MODULE
    if not is_script or spec.options.shares_folder:
        return dict.fromkeys(tasks, spec.work_dir)
    folders = {task: spec.folder.task_folder(task) for task in tasks}
    folders[tasks[0]] = spec.work_dir
    for folder in folders.values():
        if folder != spec.work_dir:
            try:
                files.refuse_symlinks(folder, below=spec.folder.path)
                shutil.rmtree(folder, ignore_errors=True)
                _make_view(spec.work_dir, folder, job_folder=spec.folder.path)
            except OSError as problem:
                raise DistlaunchError(
                    f"{folder}: cannot be made ({os_reason(problem)}); --shared-folder runs all "
                    "tasks in the project's folder"
                ) from None
    return folders


def collect_files(folders: Iterable[Path], project: Path) -> None:
    """Copy into the project what tasks have written under names that it does not have.

    Such as a file of each task, with its number in the name. All is kept in the tasks' folders.
    """
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            copy = project / path.relative_to(folder)
            is_new = path.is_file() and not path.is_symlink() and not os.path.lexists(copy)
            if is_new and path.parent.name != "__pycache__":
                with suppress(OSError):  # the run has ended, and its files are where they were
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, copy)


def _make_view(source: Path, view: Path, *, job_folder: Path) -> None:
    """Make a folder with the files of another: sources as copies, data as links.

    What is hidden, environments of Python and job folders are left out.
    """
    view.mkdir(parents=True)
    with os.scandir(source) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path, copy = source / entry.name, view / entry.name
            if entry.name.startswith(".") or path == job_folder:
                continue
            with suppress(FileNotFoundError):  # of another program, which has removed it
                if entry.is_dir(follow_symlinks=False):
                    if entry.name == "__pycache__" or any(
                        (path / name).exists() for name in _LEFT_OUT
                    ):
                        continue
                    if not _has_many_files(path):
                        _make_view(path, copy, job_folder=job_folder)
                        continue
                elif entry.is_file(follow_symlinks=False) and entry.stat().st_size < _LARGE_FILE:
                    shutil.copy2(path, copy)
                    continue
                copy.symlink_to(path)


def _has_many_files(folder: Path) -> bool:
    """Return whether a folder holds data rather than sources."""
    names = (name for _, _, in_folder in os.walk(folder) for name in in_folder)
    return next(islice(names, _MANY_FILES, None), None) is not None
