"""`distlaunch upgrade`: an older project with the trainer package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distlaunch.cli import show

if TYPE_CHECKING:
    from distlaunch.cli import Settings


@click.command("upgrade")
@click.option("--dry-run", is_flag=True, help="Show the changes and write nothing.")
@click.pass_obj
def command(settings: Settings, *, dry_run: bool) -> None:
    """Bring a project of an earlier distlaunch to the trainer package distlaunch_trainer.

    The changes are shown as a diff and then written: trainer/task.py is replaced, the copied folder
    trainer/distributed is removed, and your modules import the package instead. Replaced files are
    kept as FILE.bak. Nothing is written if you changed a file that would be replaced or removed.
    """
    from distlaunch.upgrade import plan_upgrade

    upgrade = plan_upgrade(Path())
    if not upgrade:
        show("nothing to upgrade: the project has no copied trainer")
        return
    for line in upgrade.diff():
        show(line)
    if dry_run:
        show("nothing was written")
        return
    upgrade.write(settings.show_copy)
    if not settings.quiet:
        show("upgraded; 'distlaunch local' runs the project with the installed trainer package")
