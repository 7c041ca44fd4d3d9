"""`distlaunch init` and `eject`: files of a project."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distlaunch import resources, scaffold
from distlaunch.cli import completion
from distlaunch.cli.settings import draw, show
from distlaunch.errors import UsageError
from distlaunch.text import plural

if TYPE_CHECKING:
    from distlaunch.cli.settings import Settings

DEFAULT_STARTER = "digits"


@click.command("init")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path())
@click.option(
    "--starter",
    metavar="NAME",
    shell_complete=completion.starter_names,
    help=f"Starter to copy (default: that of DIR's name, else {DEFAULT_STARTER}).",
)
@click.option("--list", "list_starters", is_flag=True, help="List the starters and exit.")
@click.option("--force", is_flag=True, help="Overwrite files; changed ones are kept as FILE.bak.")
@click.pass_obj
def command(
    settings: Settings, folder: str, starter: str | None, list_starters: bool, force: bool
) -> None:
    """Create a project in DIR (default: the current directory).

    The project has a trainer with a model and data for you to change, a job file, and data for
    training offline. There are no prompts, and no file is overwritten without --force.
    """
    if list_starters:
        _show_starters()
        return
    if not folder:
        raise UsageError("DIR is empty; leave it out for the current directory")
    path = Path(folder)
    starter = starter or (folder if folder in resources.starters() else DEFAULT_STARTER)
    project = scaffold.plan(path, starter)

    project.write(path, overwrite=force, on_copy=settings.show_copy)
    if not settings.quiet:
        _show_next(project, path, starter)


def _show_starters() -> None:
    known = resources.starters()
    width = max(map(len, known))
    for name, facts in known.items():
        draw(f"{name:{width}}  {facts['description']}")


def _show_next(project: scaffold.Scaffold, folder: Path, starter: str) -> None:
    files = f"{len(project.files)} files of the starter {starter}"
    show(f"created project {project.name} in {folder} ({files})")
    if resources.starters()[starter].get("script") and scaffold.SCRIPT not in project.files:
        show(f"kept your {scaffold.SCRIPT}: its arguments are args in distlaunch.yaml, none yet")
    show("next:")
    if folder != Path():
        # A name that begins with a dash would be an option of cd.
        words = f"./{folder}" if str(folder).startswith("-") else str(folder)
        show(f"  cd {shlex.quote(words)}")
    show("  distlaunch local")


@click.command("eject")
@click.option("--force", is_flag=True, help="Overwrite changed files, which are kept as FILE.bak.")
@click.pass_obj
def eject(settings: Settings, *, force: bool) -> None:
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
