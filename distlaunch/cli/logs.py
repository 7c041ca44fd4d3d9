"""`distlaunch logs`: what a job's tasks wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from distlaunch.cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.cli import Settings
    from distlaunch.submit.lookup import LocatedJob
    from distlaunch.ui.progress_view import ProgressView


@click.command("logs", short_help="Show what a job's tasks wrote.")
@options.job
@click.option(
    "--task",
    "tasks",
    metavar="TASK",
    multiple=True,
    help="Only chief, worker:N, ps:N, evaluator:N, or vertex for the platform's own lines.",
)
@click.option(
    "--follow/--no-follow",
    "-f",
    "follows",
    help="Go on until the job has ended (no, if not said).",
)
@options.of_google
@options.as_json
@click.pass_obj
def command(
    settings: Settings,
    /,
    *,
    job: str | None,
    tasks: tuple[str, ...],
    follows: bool,
    endpoint: str | None,
    project: str | None,
    region: str | None,
    as_json: bool,
) -> int:
    """Show what a job's tasks, and the platform itself, wrote so far.

    With --follow it goes on with each new line and each state of the job until the job has ended;
    then the exit code is 3 if that was without success. Ctrl-C leaves the job alone.

    JOB is an id or a name of ours, or Google's number or resource name; the job that was submitted
    from this folder last, if not said.
    """
    from distlaunch.cli.place import place
    from distlaunch.google.logs import check_tasks, task_names
    from distlaunch.ui.progress_view import JsonProgressView, ProgressView

    found = place(settings, endpoint, project, region).find(job)
    check_tasks(tasks, found.job)
    kind = JsonProgressView if as_json else ProgressView
    with kind(settings.console(), tasks or task_names(found.job)) as watch:
        if follows:
            return _follow(found, tasks, watch, per_entry=as_json)
        return _show(found, tasks, watch, per_entry=as_json)


def _show(found: LocatedJob, tasks: Sequence[str], watch: ProgressView, *, per_entry: bool) -> int:
    """Show all lines that there are."""
    from distlaunch.google.jobs import has_ended, state
    from distlaunch.google.logs import LogReader, Logs
    from distlaunch.ui.events import Notice

    logs = Logs(found.jobs.session, found.jobs.project)
    lines = LogReader(logs, found.job, tasks=tasks, per_entry=per_entry)
    watch.stream(lines.read_all(found.job))
    if not has_ended(found.job):
        watch.handle(Notice(f"the job is {state(found.job)}; --follow goes on with it"))
    return 0


def _follow(
    found: LocatedJob, tasks: Sequence[str], watch: ProgressView, *, per_entry: bool
) -> int:
    """Show lines and states until the job has ended."""
    from distlaunch.cli.launching import exit_code, show_final_state
    from distlaunch.google.follow import JobFollower
    from distlaunch.google.jobs import job_id
    from distlaunch.google.logs import Logs
    from distlaunch.ui.events import Notice

    logs = Logs(found.jobs.session, found.jobs.project)
    follow = JobFollower(
        found.jobs, logs, found.job, tasks=tasks, per_entry=per_entry, sleep=watch.wait
    )
    try:
        watch.stream(follow)
    except KeyboardInterrupt:
        name = job_id(found.job)
        if not show_final_state(follow.job, name, watch):
            watch.handle(Notice(f"the job goes on; 'distlaunch cancel {name}' ends it"))
            raise
    return exit_code(follow.job)
