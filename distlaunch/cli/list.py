"""`distlaunch list`: the jobs of a project and region."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from distlaunch.cli import options

if TYPE_CHECKING:
    from distlaunch.cli import Settings


@click.command("list", short_help="List the jobs of a project and region.")
@options.of_google
@click.option("--all", "everybodys", is_flag=True, help="Also jobs that distlaunch did not submit.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How many, the newest first.",
)
@options.as_json
@click.pass_obj
def command(
    settings: Settings,
    /,
    *,
    endpoint: str | None,
    project: str | None,
    region: str | None,
    everybodys: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List the jobs of a project and region, the newest first.

    Those that distlaunch submitted, from whatever folder and by whomever; --all lists the others,
    too. Project and region are those of distlaunch.yaml or gcloud, if not said.
    """
    import json

    from distlaunch.cli import show
    from distlaunch.cli.place import place
    from distlaunch.google import report

    jobs = place(settings, endpoint, project, region).jobs()
    found = jobs.newest(limit, all_jobs=everybodys)
    if as_json:
        told = [report.as_json(job, jobs.project) for job in found]
        show(json.dumps(told, indent=2, ensure_ascii=False))
    elif found:
        show(report.listing(found))
    else:
        where = f"project {jobs.project}, region {jobs.region}"
        more = "" if everybodys else " that distlaunch submitted (--all lists others)"
        settings.console().log(f"no jobs in {where}{more}")
