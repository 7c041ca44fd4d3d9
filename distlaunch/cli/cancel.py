"""`distlaunch cancel`: end a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from distlaunch.cli import options

if TYPE_CHECKING:
    from distlaunch.cli import Settings


@click.command("cancel", short_help="Cancel a job.")
@options.job
@options.of_google
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
    as_json: bool,
) -> None:
    """Ask Google to end a job; it does so within a minute or two.

    JOB is an id or a name of ours, or Google's number or resource name; the job that was submitted
    from this folder last, if not said.
    """
    import json

    from distlaunch.cli import show
    from distlaunch.cli.place import place
    from distlaunch.errors import DistlaunchError
    from distlaunch.google.jobs import has_ended, job_id, state

    found = place(settings, endpoint, project, region).find(job)
    name = job_id(found.job)
    if has_ended(found.job):
        raise DistlaunchError(f"{name}: cannot be cancelled, as it has ended ({state(found.job)})")
    found.jobs.cancel(found.job["name"])
    if as_json:
        show(json.dumps({"id": name, "name": found.job["name"], "cancelled": True}))
    else:
        show(f"cancelling {name}; 'distlaunch status {name}' says when it has ended")
