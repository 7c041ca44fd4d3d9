"""`distlaunch eject`: the trainer package as files of the project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distlaunch import scaffold
from distlaunch.cli.settings import show
from distlaunch.text import plural

if TYPE_CHECKING:
    from distlaunch.cli.settings import Settings


@click.command("eject")
@click.option("--force", is_flag=True, help="Overwrite changed files, which are kept as FILE.bak.")
@click.pass_obj
def command(settings: Settings, *, force: bool) -> None:
    """Copy the trainer package into the project, for you to change.

    Local runs and images then use the project's folder distlaunch_trainer/ in place of the package
    that is installed with distlaunch. To return to that one, remove the folder.
    """
    from distlaunch.job.load import load_job

    folder = Path()
    load_job(folder.absolute())  # only in the folder of a project
    copy = scaffold.trainer_copy(folder)
    copy.write(folder, overwrite=force, on_copy=settings.show_copy)
    if not settings.quiet:
        files = plural(len(copy.files), "file")
        show(f"wrote {files} to {copy.name}/: runs and images now use this copy")
