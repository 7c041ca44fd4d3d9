"""Options that several commands have, typed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_Command = TypeVar("_Command", bound="Callable[..., Any]")

ENDPOINT_VARIABLE = "DISTLAUNCH_ENDPOINT"

endpoint = click.option(
    "--endpoint",
    metavar="URL",
    envvar=ENDPOINT_VARIABLE,
    help=f"Where 'distlaunch emulator' answers in Google's place (or {ENDPOINT_VARIABLE}).",
)
project = click.option(
    "--project", metavar="ID", help="Google's project, whatever distlaunch.yaml says."
)
region = click.option("--region", metavar="R", help="The region, whatever distlaunch.yaml says.")
as_json = click.option("--json", "as_json", is_flag=True, help="JSON alone on stdout.")
assignments = click.option(
    "--set",
    "assignments",
    metavar="FIELD=VALUE",
    multiple=True,
    help="Another value for a field of distlaunch.yaml, as cluster.workers.count=7.",
)
job = click.argument("job", metavar="[JOB]", required=False)


def of_google(command: _Command) -> _Command:
    """Give a command the options that say where Google, or who answers in its place, is."""
    for option in (endpoint, region, project):
        command = option(command)
    return command
