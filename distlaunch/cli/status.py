"""`distlaunch status`: how a job stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from distlaunch.cli import options

if TYPE_CHECKING:
    from distlaunch.cli import Settings


@click.command("status", short_help="Say how a job stands.")
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
    """Say how a job stands: its state and times, machines, error, job folder and link.

    JOB is an id or a name of ours, or Google's number or resource name; the job that was submitted
    from this folder last, if not said.
    """
    import json

    from distlaunch.cli import show
    from distlaunch.cli.place import place
    from distlaunch.google import report

    found = place(settings, endpoint, project, region).find(job)
    if as_json:
        told = report.as_json(found.job, found.jobs.project)
        show(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        show(report.describe(found.job, found.jobs.project))
