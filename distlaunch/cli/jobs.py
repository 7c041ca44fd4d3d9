"""`distlaunch status`, `logs`, `list`, `cancel` and `resubmit`: jobs that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distlaunch.cli import completion, options
from distlaunch.cli.settings import draw, show, show_json
from distlaunch.errors import EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from distlaunch.cli.settings import Settings
    from distlaunch.submit.lookup import JobLocator, LocatedJob


@click.command("status")
@options.with_job
@click.option(
    "--watch", is_flag=True, help="Update it until the end; in a pipe, a line per change."
)
@options.as_json
def status(settings: Settings, located: LocatedJob, *, watch: bool, as_json: bool) -> int | None:
    """Show a job whole, as 'distlaunch show JOB' does: state, cause of a failure, cost, metrics.

    With --watch the exit code is 3 if the job ended without success. Ctrl-C leaves it running.
    """
    from distlaunch.cli.runs import show_view
    from distlaunch.runs.view import view_job_whole

    if watch:
        return _watch(settings, located, as_json=as_json)
    show_view(view_job_whole(located.job, located.engine, located.commit), as_json=as_json)
    return None


def _watch(settings: Settings, located: LocatedJob, *, as_json: bool) -> int:
    from distlaunch.runs.watch import StatusWatch
    from distlaunch.submit.follow import FollowOptions, follow_job

    engine, job, how = located.engine, located.job, FollowOptions(None, reattach="status --watch")
    with StatusWatch(settings.console(), engine, job, as_json=as_json) as view:
        code = follow_job(engine, job, view, how)
        if code != EXIT_INTERRUPTED:
            view.finish(located.commit)
    return code


def _parse_regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is not a regular expression: {error}") from None


@click.command("logs")
@options.with_job
@click.option(
    "--task",
    "tasks",
    metavar="TASK",
    multiple=True,
    shell_complete=completion.job_tasks,
    help="Only chief, worker:N, ps:N, evaluator:N, or vertex or slurm for the engine's own lines.",
)
@click.option(
    "--tail", "last", metavar="N", type=click.IntRange(min=0), help="Only the last N log entries."
)
@click.option(
    "--since",
    metavar="TIME",
    type=options.parse_time,
    help="Only entries since a time (2026-11-21T17:00, UTC) or for a duration (90s, 10m, 2h, 1d).",
)
@click.option(
    "--grep", "pattern", metavar="REGEX", type=_parse_regex, help="Only lines that match REGEX."
)
@click.option(
    "--severity",
    type=click.Choice(["INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL"], case_sensitive=False),
    help="Only entries of this severity and above.",
)
@click.option(
    "--follow/--no-follow",
    "-f",
    "is_following",
    help="Continue until the job has ended (default: no).",
)
@click.option(
    "--timestamps", "shows_times", is_flag=True, help="Print each line's time, in local time."
)
@options.notify
@options.as_json
def logs(
    settings: Settings,
    located: LocatedJob,
    *,
    tasks: tuple[str, ...],
    last: int | None,
    since: float | None,
    pattern: re.Pattern[str] | None,
    severity: str | None,
    is_following: bool,
    shows_times: bool,
    notify: str | None,
    as_json: bool,
) -> int:
    """Show the log of a job's tasks and of the platform.

    With --follow, new lines and states are shown until the job has ended; the exit code is 3 if it
    ended without success. Ctrl-C does not affect the job.
    """
    from distlaunch.engines.api import LogSelection
    from distlaunch.engines.vertex.log_query import check_tasks
    from distlaunch.events import Notice
    from distlaunch.notify import Ending, notify_at_end
    from distlaunch.submit.follow import FollowOptions, follow_job
    from distlaunch.ui.progress_view import job_view

    if notify and not is_following:
        raise UsageError("--notify needs --follow")
    engine, job = located.engine, located.job
    check_tasks(tasks, job.tasks)
    entries = {"is_per_entry": as_json or shows_times, "needs_times": shows_times}
    selection = LogSelection(tasks, since, last, pattern, severity or "", **entries)
    ending = Ending(job.id, cancels=False)
    log = settings.console().log
    with (
        notify_at_end(notify, ending, log),
        job_view(settings.console(), tasks or job.tasks, as_json=as_json) as view,
    ):
        view.shows_times = shows_times
        if is_following:
            ending.code = follow_job(engine, job, view, FollowOptions(selection))
            return ending.code
        view.is_live = False
        view.stream(engine.read_log(job, selection))
        if not job.has_ended:
            view.handle(Notice(f"the job is {job.state}; use --follow to continue"))
        return 0


@click.command("list")
@options.with_locator
@click.option("--all", "all_jobs", is_flag=True, help="Include jobs not submitted by distlaunch.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How many jobs, the newest first.",
)
@click.option("--local", "is_local", is_flag=True, help="List the runs on this machine instead.")
@options.as_json
def list_jobs(
    settings: Settings,
    locator: JobLocator,
    *,
    all_jobs: bool,
    limit: int,
    is_local: bool,
    as_json: bool,
) -> None:
    """List the jobs of a project and region, the newest first.

    Only jobs that distlaunch submitted, from any directory and by anyone, unless --all is given.
    With --local, the runs of this directory's project on this machine, with their disk use.
    """
    if is_local:
        from distlaunch.cli.runs import list_runs

        list_runs(settings, limit, as_json=as_json)
        return
    from distlaunch.runs import display
    from distlaunch.runs.view import view_priced

    engine = locator.engine()
    newest = [view_priced(job, engine) for job in engine.newest(limit, all_jobs=all_jobs)]
    if as_json:
        show_json([job.as_json() for job in newest])
    elif newest:
        draw(display.job_listing(newest))
    else:
        hint = "" if all_jobs else " submitted by distlaunch (--all lists others)"
        settings.console().log(f"no jobs in {engine.location}{hint}")


@click.command("cancel")
@options.with_job
@options.as_json
def cancel(_: Settings, located: LocatedJob, *, as_json: bool) -> None:
    """Cancel a job; its tasks get SIGTERM, and Vertex AI ends it within a minute or two."""
    from distlaunch.errors import DistlaunchError
    from distlaunch.submit.records import Records

    job, name, records = located.job, located.job.id, Records(Path.cwd())
    if located.record and not job.has_ended:
        records.note_cancelled(located.record)  # waits for a command that moves the job
    if moved := records.find_moved(name):
        is_elsewhere = located.record and moved.region != located.record.region
        place = moved.region if is_elsewhere else "other machines"
        raise DistlaunchError(
            f"{name}: was moved to {place}; run 'distlaunch cancel {moved.launch_id}'"
        )
    if job.has_ended:
        raise DistlaunchError(f"{name}: already finished ({job.state})")
    located.engine.cancel(job.name)
    if as_json:
        show(json.dumps({"id": name, "name": job.name, "cancelled": True}))
    else:
        draw(f"cancelling {name}; 'distlaunch status {name}' shows when it has ended")


@click.command("resubmit", cls=options.NamedPassthroughCommand)
@options.with_job
@options.overrides
@options.follow_options
@options.max_cost
@options.notify
@options.as_json
def resubmit(
    settings: Settings,
    located: LocatedJob,
    *,
    overrides: tuple[str, ...],
    program_args: tuple[str, ...],
    is_new: bool,
    max_cost: float | None,
    notify: str | None,
    detach: bool,
    cancel_on_interrupt: bool,
    as_json: bool,
) -> int:
    """Submit a job again: the same image by digest, machines, arguments and variables.

    The new job gets a new job folder. --set overrides a field as in distlaunch.yaml; the arguments
    after -- are appended to the program's.
    """
    from distlaunch.checks.cost_limit import check_request
    from distlaunch.cli.submit import follow_or_detach
    from distlaunch.notify import Ending, notify_at_end
    from distlaunch.submit.launcher import Launcher
    from distlaunch.ui.progress_view import ProgressView

    options.reject_launcher_options(program_args)
    options.check_notify(notify, detach=detach)
    console = settings.console()
    if max_cost is not None:
        request = located.engine.request_again(located.job, overrides, program_args)("ID")
        check_request(request, located.job, Path.cwd(), max_cost)
    launcher = Launcher(Path.cwd(), located.engine, ProgressView(console, ["image"]).handle)
    launched = launcher.resubmit(
        located.job, overrides=overrides, program_args=program_args, is_new=is_new
    )
    record = launched.record
    ending = Ending(record.launch_id, record.job_dir or "", cancels=cancel_on_interrupt)
    with notify_at_end(notify, ending, console.log):
        ending.code = follow_or_detach(
            console,
            launched,
            launcher,
            detach=detach,
            cancel_on_interrupt=cancel_on_interrupt,
            as_json=as_json,
        )
    return ending.code
