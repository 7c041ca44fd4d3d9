"""`distlaunch submit`: check, build, push, submit and follow the job to its end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from distlaunch.cli import options
from distlaunch.cli.dashes import WithNameAndWords
from distlaunch.cli.ordering import of_an_order, order_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from distlaunch.checks.report import Report
    from distlaunch.cli import Settings
    from distlaunch.image.context import ContextFile
    from distlaunch.submit.plan import LaunchRequest, SubmitPlan
    from distlaunch.ui.console import Console

MOST_FILES = 50  # that a dry run names


@click.command(
    "submit",
    cls=WithNameAndWords,
    short_help="Build, push, submit to Vertex AI and follow the job.",
)
@click.argument("name", metavar="[NAME] [-- ARGS...]", required=False)
@of_an_order
@click.option("--dry-run", is_flag=True, help="Show the plan and the request; send nothing.")
@click.option("--verbose", is_flag=True, help="With --dry-run: list all files of the image.")
@click.option("--detach", is_flag=True, help="Leave when the job is submitted.")
@click.option("--no-check", is_flag=True, help="Submit it whatever the checks would say.")
@click.option(
    "--new", "is_new", is_flag=True, help="Start another, though one of the same was cut off."
)
@click.option(
    "--cancel-on-interrupt", is_flag=True, help="Ctrl-C cancels the job; otherwise it goes on."
)
@options.as_json
@click.pass_obj
def command(settings: Settings, /, **given: Any) -> int:
    """Check, build, push and submit the job of distlaunch.yaml, and follow it to its end.

    What stands after -- is given to the job's program behind its args. Ctrl-C leaves; the job goes
    on, and 'distlaunch logs --follow' comes back to it.

    \b
      distlaunch submit --dry-run
      distlaunch submit -- --epochs 20
      distlaunch submit --config config.yaml --region europe-west4
    """  # noqa: D301 - click wants the character that this is an escape for
    console = settings.console()
    order, notes = order_of(**given)
    for note in notes:
        console.log(note, "warning")
    return _submit(console, order, **given)


def _submit(
    console: Console,
    order: LaunchRequest,
    *,
    dry_run: bool,
    verbose: bool,
    no_check: bool,
    is_new: bool,
    detach: bool,
    cancel_on_interrupt: bool,
    as_json: bool,
    catalogue: Path | None,
    prices: Path | None,
    **_: Any,
) -> int:
    from distlaunch.checks.preflight import CheckOptions, run_checks, skip_checks
    from distlaunch.cli.launching import see_through
    from distlaunch.errors import GoogleError, UsageError
    from distlaunch.google.client import connect
    from distlaunch.google.jobs import Jobs
    from distlaunch.submit.launcher import Launcher
    from distlaunch.submit.plan import plan_submit
    from distlaunch.ui.progress_view import ProgressView

    if verbose and not dry_run:
        raise UsageError("--verbose lists the image's files with --dry-run; add that")
    job = order.job
    session, refusal = None, None
    if not dry_run:
        try:
            session = connect(order.endpoint, project=job.project, show_message=console.log)
        except GoogleError as problem:
            refusal = problem  # told after all else that is wrong
    scope = CheckOptions(catalogue=catalogue, prices=prices)
    report = skip_checks(order) if no_check else run_checks(order, scope, session=session)
    _tell(console, report)
    if not report.is_ready:
        if as_json:
            console.result(json.dumps({"event": "refused", **report.as_json()}, ensure_ascii=False))
        console.log("nothing was built, pushed or submitted; --no-check insists", "error")
        return 1
    if refusal is not None:
        raise refusal
    plan = plan_submit(order, report.image if report.registry_contacted else None)
    if session is None:
        _show(console, plan, verbose=verbose)
        return 0
    jobs = Jobs(session, str(job.project), str(job.region))
    watch = ProgressView(console, ["image"])
    launcher = Launcher(order.folder, jobs, watch.handle, show_message=console.log)
    launched = launcher.launch(plan, console.progress, is_new=is_new)
    return see_through(
        console,
        launched,
        launcher,
        jobs,
        detach=detach,
        cancel_on_interrupt=cancel_on_interrupt,
        as_json=as_json,
    )


def _tell(console: Console, report: Report) -> None:
    """Show the plan, then what speaks against it, the gravest last, and the verdict."""
    from distlaunch.checks.report import format_plan, format_verdict

    console.log(format_plan(report))
    for problem in reversed(report.problems):
        console.log(f"{problem.line} [{problem.code}]", problem.severity)
    console.log(format_verdict(report))


def _show(console: Console, plan: SubmitPlan, *, verbose: bool) -> None:
    """Show what a submit would do: the request on stdout, all else on stderr."""
    from distlaunch.redaction import hide_secrets

    if plan.image and plan.image.context:
        files = plan.image.context.files
        most = len(files) if verbose else MOST_FILES
        console.log("\n".join(["what goes into the image:", *_listed(files, most)]))
    request, hidden = hide_secrets(plan.request)
    if hidden:
        console.log(f"{', '.join(hidden)}: the value is hidden here, and is in the real request")
    console.log(f"job folder {plan.order.job_dir_of(plan.launch_id)}")
    console.log(f"dry run: nothing was sent; this would be posted to {plan.collection}:")
    console.result(json.dumps(request, indent=2, ensure_ascii=False))


def _listed(files: Sequence[ContextFile], most: int) -> list[str]:
    """Return a line a file with its bytes, the first of many."""
    lines = [f"{file.size:>12,}  {file.path}" for file in files[:most]]
    more = len(files) - most
    return [*lines, f"and {more:,} more; --verbose lists them"] if more > 0 else lines
