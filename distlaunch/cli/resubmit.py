"""`distlaunch resubmit`: submit a job once more as it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distlaunch.cli import options

if TYPE_CHECKING:
    from distlaunch.cli import Settings


@click.command("resubmit", short_help="Submit a job again as it was.")
@options.job
@options.of_google
@click.option("--detach", is_flag=True, help="Leave when the job is submitted.")
@click.option(
    "--new", "is_new", is_flag=True, help="Start another, though a resubmission was cut off."
)
@click.option(
    "--cancel-on-interrupt", is_flag=True, help="Ctrl-C cancels the job; otherwise it goes on."
)
@options.as_json
@click.pass_obj
def command(
    settings: Settings,
    /,
    *,
    job: str | None,
    endpoint: str | None,
    project: str | None,
    region: str | None,
    detach: bool,
    is_new: bool,
    cancel_on_interrupt: bool,
    as_json: bool,
) -> int:
    """Submit a job once more: the same image by digest, machines, args and variables.

    JOB is an id or a name of ours, or Google's number or resource name; the job that was submitted
    from this folder last, if not said. It gets a job folder of its own. Google is asked for the job
    as it was, since variables are not recorded here.
    """
    from distlaunch.cli.launching import see_through
    from distlaunch.cli.place import place
    from distlaunch.submit.launcher import Launcher
    from distlaunch.ui.progress_view import ProgressView

    shown = settings.console()
    found = place(settings, endpoint, project, region).find(job)
    launcher = Launcher(Path.cwd(), found.jobs, ProgressView(shown, ["image"]).handle)
    launched = launcher.resubmit(found.job, is_new=is_new)
    return see_through(
        shown,
        launched,
        launcher,
        found.jobs,
        detach=detach,
        cancel_on_interrupt=cancel_on_interrupt,
        as_json=as_json,
    )
