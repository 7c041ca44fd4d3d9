"""`distlaunch check`: every problem of a job and its price, before anything is paid for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from distlaunch.cli import options, without_gc
from distlaunch.cli.dashes import WithNameAndWords
from distlaunch.cli.ordering import of_an_order, order_of
from distlaunch.errors import DistlaunchError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.cli import Settings


@click.command(
    "check", cls=WithNameAndWords, short_help="Tell every problem of the job, and its price."
)
@click.argument("name", metavar="[NAME] [-- ARGS...]", required=False)
@of_an_order
@click.option("--offline", is_flag=True, help="Ask nobody: neither Google nor a registry.")
@click.option("--run", is_flag=True, help="Also train one step on one process of this machine.")
@click.option(
    "--compare-machines", is_flag=True, help="List the machines that could run it, by price."
)
@options.as_json
@click.pass_obj
@without_gc()
def command(
    settings: Settings,
    /,
    *,
    offline: bool,
    run: bool,
    compare_machines: bool,
    catalogue: Path | None,
    prices: Path | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Tell all that can be known of the job before it is submitted, each problem with its remedy.

    Nothing is built, pushed or started, and nothing of the project is executed but with --run. The
    exit code is 0 for a job that is ready, 1 for one that is not; warnings alone are no obstacle.

    \b
      distlaunch check
      distlaunch check --offline --json
      distlaunch check --set cluster.workers.count=7 --compare-machines
    """  # noqa: D301 - click wants the character that this is an escape for
    from distlaunch.checks.preflight import CheckOptions, run_checks
    from distlaunch.checks.report import format_report, unreadable_as_json

    console = settings.console()
    scope = CheckOptions(offline, run, compare_machines, catalogue, prices)
    try:
        order, notes = order_of(**given)
        for note in notes:
            console.log(note, "warning")
        report = run_checks(order, scope)
    except DistlaunchError as refusal:
        if not as_json or isinstance(refusal, UsageError):
            raise
        console.result(json.dumps(unreadable_as_json(refusal), ensure_ascii=False))
        return refusal.exit_code
    if as_json:
        console.result(json.dumps(report.as_json(), ensure_ascii=False))
    else:
        console.result(format_report(report, console.painted))
    console.drain()
    return 0 if report.is_ready else 1
