"""`distlaunch check`: check the job and estimate its cost before anything is paid for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from distlaunch.cli.options import (
    LaunchOptions,
    NamedPassthroughCommand,
    launch_options,
    load_launch,
)
from distlaunch.errors import EXIT_ERROR, DistlaunchError, UsageError

if TYPE_CHECKING:
    from distlaunch.cli.settings import Settings


@click.command("check", cls=NamedPassthroughCommand)
@launch_options
@click.option("--offline", is_flag=True, help="Contact neither Google nor a registry.")
@click.option("--run", is_flag=True, help="Also train one step in one process on this machine.")
@click.option(
    "--compare-machines", is_flag=True, help="List the machines that could run it, by price."
)
@click.pass_obj
def command(
    settings: Settings, /, *, offline: bool, run: bool, compare_machines: bool, **values: Any
) -> int:
    """Check the job of distlaunch.yaml before it is submitted, and estimate its cost.

    Problems are printed together, each with its remedy. Nothing is built, pushed or started, and
    none of the project's code is executed without --run. The exit code is 0 for a job that is
    ready, also with warnings, and 1 for one that is not.

    \b
      distlaunch check
      distlaunch check --offline --json
      distlaunch check --set cluster.workers.count=7 --compare-machines
    """  # noqa: D301 - click wants the character that this is an escape for
    from distlaunch.checks.preflight import CheckOptions, run_checks
    from distlaunch.checks.report import format_report, unreadable_as_json

    options = LaunchOptions.of(values)
    console = settings.console()
    scope = CheckOptions(
        offline=offline,
        run=run,
        compare=compare_machines,
        prices=options.prices,
    )
    try:
        launch, notes = load_launch(options)
        for note in notes:
            console.log(note, "warning")
        report = run_checks(launch, scope)
    except DistlaunchError as error:
        if not options.as_json or isinstance(error, UsageError):
            raise
        console.result(json.dumps(unreadable_as_json(error), ensure_ascii=False))
        return error.exit_code
    if options.as_json:
        console.result(json.dumps(report.as_json(), ensure_ascii=False))
    else:
        console.draw(*format_report(report, console.painted))
    return 0 if report.is_ready else EXIT_ERROR
