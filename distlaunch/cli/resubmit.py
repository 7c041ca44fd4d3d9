"""`distlaunch resubmit`: submit a job once more as it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from distlaunch.cli import options

if TYPE_CHECKING:
    from distlaunch.cli import Settings
    from distlaunch.events import Level
    from distlaunch.records import Record


@click.command("resubmit", short_help="Submit a job again as it was.")
@options.job
@options.endpoint
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
    detach: bool,
    is_new: bool,
    cancel_on_interrupt: bool,
    as_json: bool,
) -> int:
    """Submit a job once more: the same image by digest, machines, args and variables.

    JOB is an id or a name, the newest job of this folder if not said. It gets a job folder of its
    own. Google is asked for the job as it was, since variables are not recorded here.
    """
    from distlaunch import launch
    from distlaunch.cli.launching import see_through
    from distlaunch.console import Console
    from distlaunch.google.jobs import Jobs
    from distlaunch.google.session import connect
    from distlaunch.watch import Watch

    console = Console(cast("Level", "error" if settings.quiet else settings.log_level))
    folder = Path.cwd()
    record = _record(folder, job)
    session = connect(endpoint or record.endpoint, project=record.project)
    jobs = Jobs(session, record.project, record.region)
    launched = launch.again(record, folder, jobs, Watch(console, ["image"]).see, is_new=is_new)
    return see_through(
        console,
        launched,
        folder,
        session,
        jobs,
        detach=detach,
        cancel_on_interrupt=cancel_on_interrupt,
        as_json=as_json,
    )


def _record(folder: Path, which: str | None) -> Record:
    from distlaunch.errors import DistlaunchError
    from distlaunch.records import Records

    records = Records(folder)
    found = records.find(which)
    if found:
        return found
    if which is None:
        raise DistlaunchError("nothing was submitted from this folder yet; 'distlaunch submit'")
    raise DistlaunchError(
        f"no job {which!r} was submitted from this folder{records.hint(which)}; resubmit from the "
        "folder that it was submitted from"
    )
