"""`distlaunch build`: the job's image alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distlaunch.cli import options, without_gc

if TYPE_CHECKING:
    from distlaunch.cli import Settings
    from distlaunch.image import Glance, ImagePlan
    from distlaunch.ui.console import Console
    from distlaunch.ui.events import Event


@click.command("build", short_help="Build and push the job's image.")
@click.option(
    "--no-push",
    is_flag=True,
    help="Say what would be pushed, and leave the image in the container engine.",
)
@options.assignments
@click.pass_obj
@without_gc()
def command(settings: Settings, /, *, no_push: bool, assignments: tuple[str, ...]) -> int:
    """Build and push the image of distlaunch.yaml, and print it by its digest.

    Nothing is sent that the registry has. A container engine is needed only for an environment that
    is not there yet, or a Dockerfile of your own.

    \b
      distlaunch build
      docker run --rm $(distlaunch build --no-push) --help
    """  # noqa: D301 - click wants the character that this is an escape for
    from distlaunch.image import Glance, carry_out, plan_as_before

    console = settings.console()
    glance = Glance(Path.cwd(), assignments)
    made = None if no_push else plan_as_before(glance)
    made = made or _planned(console, glance, assignments)
    _tell(console, made, no_push=no_push)
    built = carry_out(
        made, lambda event: _see(console, event), push=not no_push, progress=console.progress
    )
    if not no_push and built.way != "use":
        console.say(f"{built.sent:,} bytes sent")
    console.result(built.uri)
    console.drain()
    return 0


def _planned(console: Console, glance: Glance, assignments: tuple[str, ...]) -> ImagePlan:
    """Read the job file, and find out what there is to do."""
    from distlaunch.image import plan
    from distlaunch.job.load import load_job

    loaded = load_job(glance.folder, sets=assignments)
    for note in loaded.notes:
        console.say(note, "warning")
    made = plan(loaded.job, glance.folder)
    if made.making and not loaded.notes:
        glance.keep(made.making)
    return made


def _tell(console: Console, made: ImagePlan, *, no_push: bool) -> None:
    """Say what is to be done, and what of the project it is done with."""
    would = " would be pushed" if no_push else ""
    console.say(f"{made.reference}{would}: {made.reason}")
    report = made.context.report() if made.context else None
    if report:
        console.say(report, "warning")


def _see(console: Console, event: Event) -> None:
    from distlaunch.ui.events import Notice

    if isinstance(event, Notice):
        console.progress("")
        console.say(event.text, event.level)
