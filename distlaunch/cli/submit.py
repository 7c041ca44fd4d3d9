"""`distlaunch submit`: check, build, push, submit and follow the job to its end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from distlaunch.cli.options import (
    LaunchOptions,
    NamedPassthroughCommand,
    check_notify,
    follow_options,
    launch_options,
    load_launch,
    notify,
)
from distlaunch.errors import EXIT_ERROR, EngineError, UsageError

if TYPE_CHECKING:
    from distlaunch.checks.report import Report
    from distlaunch.cli.settings import Settings
    from distlaunch.engines.api import Engine
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.notify import Ending
    from distlaunch.submit.launcher import Launched, Launcher
    from distlaunch.submit.plan import SubmitPlan
    from distlaunch.ui.console import Console

MAX_FILES = 50  # that a dry run lists


@dataclass(frozen=True, kw_only=True)
class SubmitOptions(LaunchOptions):
    """The values of the options of `submit_options`, and of those that such commands have."""

    no_check: bool
    verbose: bool
    dry_run: bool
    is_new: bool
    cancel_on_interrupt: bool
    notify: str | None


def submit_options(command: Any) -> Any:
    """Give a command the options of `launch_job`."""
    for option in (
        click.option("--no-check", is_flag=True, help="Submit even if checks fail."),
        click.option(
            "--verbose", is_flag=True, help="With --dry-run: list all files of the image."
        ),
        click.option(
            "--dry-run", is_flag=True, help="Print the plan and the request; send nothing."
        ),
    ):
        command = option(command)
    return launch_options(command)


@click.command("submit", cls=NamedPassthroughCommand)
@submit_options
@follow_options
@notify
@click.pass_obj
def command(settings: Settings, /, *, detach: bool, **values: Any) -> int:
    """Check, build, push and submit the job of distlaunch.yaml, and follow it to its end.

    The arguments after -- are appended to the program's args. The plan, with its price, is shown
    and not confirmed. Ctrl-C exits; the job keeps running, and 'distlaunch logs --follow'
    reattaches.

    \b
      distlaunch submit --dry-run
      distlaunch submit -- --epochs 20
      distlaunch submit --config config.yaml --region europe-west4
    """  # noqa: D301 - click wants the character that this is an escape for
    from distlaunch.notify import Ending, notify_at_end

    options = SubmitOptions.of(values)
    check_notify(options.notify, detach=detach)
    console = settings.console()
    launch, notes = load_launch(options)
    ending = Ending(launch.job.name, launch.job_dir or "", cancels=options.cancel_on_interrupt)
    with notify_at_end(None if options.dry_run else options.notify, ending, console.log):
        ending.code = _submit(console, launch, notes, options, ending, detach=detach)
    return ending.code


def _submit(
    console: Console,
    launch: LaunchRequest,
    notes: list[str],
    options: SubmitOptions,
    ending: Ending,
    *,
    detach: bool,
) -> int:
    """Submit and follow a job, and return the exit code."""
    submitted = launch_job(console, launch, notes, options)
    if isinstance(submitted, int):
        return submitted
    record = submitted.launched.record
    ending.job, ending.job_dir = record.launch_id, record.job_dir or ""
    return follow_or_detach(
        console,
        submitted.launched,
        submitted.launcher,
        detach=detach,
        cancel_on_interrupt=options.cancel_on_interrupt,
        as_json=options.as_json,
        max_wait=launch.job.scheduling.max_wait,
    )


def follow_or_detach(
    console: Console,
    launched: Launched,
    launcher: Launcher,
    *,
    detach: bool,
    cancel_on_interrupt: bool,
    as_json: bool,
    max_wait: float | None = None,
) -> int:
    """Follow a launched job to its end, or leave it running, and return the exit code."""
    from distlaunch.engines.api import LogSelection
    from distlaunch.submit import follow
    from distlaunch.ui.progress_view import job_view

    if detach:
        follow.detach(console, launched, launcher, as_json=as_json)
        return 0
    selection = LogSelection(hide_noise=True, is_per_entry=as_json)
    options = follow.FollowOptions(selection, cancel_on_interrupt, max_wait)
    with job_view(console, launched.job.tasks, as_json=as_json) as view:
        return follow.follow_launch(launched, launcher, view, options)


class Submitted(NamedTuple):
    """A job that was submitted; its record is open until the launcher closes it."""

    launched: Launched
    launcher: Launcher
    report: Report


def launch_job(
    console: Console, launch: LaunchRequest, notes: list[str], options: SubmitOptions
) -> Submitted | int:
    """Check, build, push and submit a job, or return the exit code if none is submitted."""
    from distlaunch.engines.vertex.engine import VertexEngine
    from distlaunch.engines.vertex.reservations import with_zone
    from distlaunch.submit.launcher import Launcher
    from distlaunch.submit.lookup import engine_of
    from distlaunch.submit.plan import plan_submit
    from distlaunch.ui.progress_view import ProgressView

    if options.verbose and not options.dry_run:
        raise UsageError("--verbose lists the image's files with --dry-run; add that")
    if launch.job.is_on_slurm and launch.job.tuning:
        raise UsageError(
            "a search on Slurm is run by 'distlaunch tune'; for one job add --set tuning="
        )
    engine, connection_error = None, None
    if not options.dry_run:
        try:
            engine = engine_of(launch, console.log)
            if isinstance(engine, VertexEngine):
                launch = with_zone(launch, engine.session)
        except EngineError as error:
            connection_error = error  # reported after the problems of the job
    report = check_launch(console, launch, notes, options, engine, has_verdict=not connection_error)
    if report is None:
        return EXIT_ERROR
    if connection_error:
        raise connection_error
    plan = plan_submit(launch, report.image if report.registry_contacted else None)
    if engine is None:
        _show_dry_run(console, plan, verbose=options.verbose)
        return 0
    view = ProgressView(console, ["image"])
    launcher = Launcher(launch.folder, engine, view.handle, show_message=console.log)
    launched = launcher.launch(plan, console.progress, is_new=options.is_new)
    return Submitted(launched, launcher, report)


def check_launch(
    console: Console,
    launch: LaunchRequest,
    notes: list[str],
    options: SubmitOptions,
    engine: Engine | None = None,
    *,
    has_verdict: bool = True,
) -> Report | None:
    """Check a job and print the plan and its problems; return None if errors keep it from running.

    Without a verdict the report is followed by an error.
    """
    from distlaunch.checks import cost_limit, required_fields

    for note in notes:
        console.log(note, "warning")
    report = _check(launch, options, engine)
    _show_report(console, report, has_verdict=has_verdict)
    if not launch.job.is_on_slurm and not launch.is_for_emulator:
        _show_forecast(console, launch, options)
    if report.is_ready:
        return report
    if options.as_json:
        console.result(json.dumps({"event": "refused", **report.as_json()}, ensure_ascii=False))
    lasting = [*required_fields.problems(launch), *cost_limit.problems(launch, report.choices)]
    is_lasting = {problem.code for problem in lasting} & {each.code for each in report.errors}
    can_insist = not options.no_check and not is_lasting
    insist = "; use --no-check to submit anyway" if can_insist else ""
    console.log(f"nothing was built or submitted{insist}", "error")
    return None


def _check(launch: LaunchRequest, options: SubmitOptions, engine: Engine | None) -> Report:
    from distlaunch.checks.preflight import CheckOptions, run_checks, skip_checks

    scope = CheckOptions(prices=options.prices)
    if options.no_check:
        return skip_checks(launch, scope)
    return run_checks(launch, scope, session=getattr(engine, "session", None))


def _show_report(console: Console, report: Report, *, has_verdict: bool) -> None:
    """Print the plan, then the problems, the gravest last, and the verdict if there is one."""
    from distlaunch.checks.problem import more_about
    from distlaunch.checks.report import format_plan, format_verdict

    console.log(format_plan(report))
    for problem in reversed(report.problems):
        console.log(f"{problem.line} [{problem.code}]", problem.severity)
    if has_verdict or not report.is_ready:
        console.log(format_verdict(report))
    if report.problems:
        console.log(more_about(report.problems))


def _show_forecast(console: Console, launch: LaunchRequest, options: SubmitOptions) -> None:
    """Print the time and the price of the whole job, if its local runs allow a forecast."""
    from distlaunch.checks.trainer import parse_arguments
    from distlaunch.price.forecast import total_for
    from distlaunch.runs.measured import measured_runs

    total = total_for(
        launch.job,
        launch.folder,
        measured_runs(launch.folder),
        parse_arguments(launch.job.args, epochs=None)[0],  # None for as many as the newest run
        catalogue=options.catalogue,
        prices=options.prices,
    )
    if total:
        console.log(f"forecast: {total.describe_total()}")


def _show_dry_run(console: Console, plan: SubmitPlan, *, verbose: bool) -> None:
    """Print the request on stdout, and the rest on stderr."""
    from distlaunch.engines.slurm.batch import batch_script
    from distlaunch.engines.slurm.engine import SlurmEngine
    from distlaunch.engines.vertex.engine import VertexEngine
    from distlaunch.redaction import hide_secrets

    launch, is_on_slurm = plan.launch, plan.launch.job.is_on_slurm
    if plan.files:
        limit = len(plan.files) if verbose else MAX_FILES
        lines = [f"{size:>12,}  {path}" for path, size in plan.files[:limit]]
        if len(plan.files) > limit:
            lines.append(f"and {len(plan.files) - limit:,} more; --verbose lists them")
        console.log("\n".join([f"files of the {'code' if is_on_slurm else 'image'}:", *lines]))
    engine: type[Engine] = SlurmEngine if is_on_slurm else VertexEngine
    request = engine.request(launch, plan.launch_id, plan.image_uri)
    body, hidden = hide_secrets(request.body)
    if hidden:
        console.log(f"{', '.join(hidden)}: the value is hidden here, and is in the real request")
    console.log(f"job folder {request.job_dir}")
    target = "given to sbatch" if is_on_slurm else f"posted to {request.collection}"
    console.log(f"dry run: nothing was sent; this would be {target}:")
    if is_on_slurm:
        console.result(batch_script(body, launch.folder).rstrip())
    else:
        console.result(json.dumps(body, indent=2, ensure_ascii=False))
