"""`distlaunch init`: scaffold a project."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distlaunch import resources, scaffold
from distlaunch.cli import show
from distlaunch.errors import UsageError

if TYPE_CHECKING:
    from distlaunch.cli import Settings

DEFAULT_STARTER = "digits"


@click.command("init", short_help="Start a project: a trainer, a job file and data.")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path())
@click.option(
    "--starter",
    metavar="NAME",
    default=DEFAULT_STARTER,
    show_default=True,
    help="What to start from.",
)
@click.option("--list", "list_starters", is_flag=True, help="List the starters and end.")
@click.option(
    "--force", is_flag=True, help="Overwrite files; each that changes is kept as FILE.bak."
)
@click.pass_obj
def command(
    settings: Settings, folder: str, starter: str, list_starters: bool, force: bool
) -> None:
    """Start a project in DIR (the folder you are in, unless said otherwise).

    It gets a trainer whose model and data are yours to change, a job file and data that trains
    offline. Nothing is asked, and no file is overwritten without --force.
    """
    if list_starters:
        _show_starters()
        return
    if not folder:
        raise UsageError("the folder's name is empty; leave it out for the folder you are in")
    path = Path(folder)
    project = scaffold.plan(path, starter)

    def show_copy(file: Path, copy: Path) -> None:
        if not settings.quiet:
            show(f"kept {file} as {copy}")

    project.write(path, overwrite=force, on_copy=show_copy)
    if not settings.quiet:
        _show_next(project, path)


def _show_starters() -> None:
    for name, description in resources.starters().items():
        show(f"{name}  {description}")


def _show_next(project: scaffold.Scaffold, folder: Path) -> None:
    show(f"made the project {project.name} in {folder} ({len(project.files)} files)")
    show("next:")
    if folder != Path():
        # What begins with a dash would be an option of cd's.
        words = f"./{folder}" if str(folder).startswith("-") else str(folder)
        show(f"  cd {shlex.quote(words)}")
    show("  distlaunch local")
