"""What `submit` and `resubmit` do once Google has the job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from distlaunch.exit_codes import EXIT_INTERRUPTED, EXIT_JOB_FAILED
from distlaunch.ui.events import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distlaunch.google.follow import JobFollower
    from distlaunch.google.jobs import Jobs
    from distlaunch.google.tail import LogSelection
    from distlaunch.submit.launcher import Launched, Launcher
    from distlaunch.submit.records import Record
    from distlaunch.ui.console import Console
    from distlaunch.ui.progress_view import ProgressView

_Command = TypeVar("_Command", bound="Callable[..., Any]")


@dataclass(frozen=True, kw_only=True)
class FollowOptions:
    """What to do after the launch."""

    detach: bool  # exit at once
    cancel_on_interrupt: bool  # Ctrl-C cancels the job; a second one exits in any case
    as_json: bool


def follow_options(command: _Command) -> _Command:
    """Give a command the options `is_new`, `detach` and `cancel_on_interrupt`."""
    for option in (
        click.option(
            "--cancel-on-interrupt",
            is_flag=True,
            help="Cancel the job on Ctrl-C (default: it keeps running).",
        ),
        click.option(
            "--new",
            "is_new",
            is_flag=True,
            help="Start a new job even if an identical launch was interrupted.",
        ),
        click.option("--detach", is_flag=True, help="Exit when the job is submitted."),
    ):
        command = option(command)
    return command


def follow_or_detach(
    console: Console, launched: Launched, launcher: Launcher, jobs: Jobs, options: FollowOptions
) -> int:
    """Follow a launched job to its end, or exit, and return the exit code."""
    from distlaunch.google.jobs import console_url
    from distlaunch.google.logs import task_names
    from distlaunch.google.tail import LogSelection
    from distlaunch.ui.progress_view import JsonProgressView, ProgressView

    record, job = launched
    try:
        url = None if record.endpoint else console_url(job, record.project)
        console.log(f"submitted {record.launch_id}" + (f": {url}" if url else ""))
        if record.job_dir:
            console.log(f"job folder {record.job_dir}")
        submitted = {"job": record.launch_id, "name": record.resource, "console": url}
        if options.detach:
            console.result(json.dumps(submitted) if options.as_json else record.launch_id)
            return 0
        if options.as_json:
            console.result(json.dumps({"event": "submitted", **submitted}))
        with (JsonProgressView if options.as_json else ProgressView)(
            console, task_names(job)
        ) as view:
            selection = LogSelection(hide_noise=True)
            follower = job_follower(jobs, job, selection, view, per_entry=options.as_json)
            return _follow(record, jobs, follower, view, options)
    finally:
        launcher.close(record)


def job_follower(
    jobs: Jobs,
    job: Mapping[str, Any],
    selection: LogSelection,
    view: ProgressView,
    *,
    per_entry: bool,
) -> JobFollower:
    """Return what follows a job for a view."""
    from distlaunch.google.client import is_loopback
    from distlaunch.google.follow import EMULATOR, GOOGLE, JobFollower

    return JobFollower(
        jobs,
        job,
        selection=selection,
        per_entry=per_entry,
        intervals=EMULATOR if is_loopback(jobs.session.endpoint) else GOOGLE,
        sleep=view.wait,
    )


def show_final_state(job: Mapping[str, Any], name: str, view: ProgressView) -> bool:
    """Show the final state of a job after an interrupt; return False if it is still running."""
    from distlaunch.google.jobs import has_ended, state

    if not has_ended(job):
        return False
    text = f"interrupted: the job has ended: {state(job)}; 'distlaunch logs {name}' shows all lines"
    view.handle(Notice(text))
    return True


def exit_code(job: Mapping[str, Any]) -> int:
    """Return the exit code for a job that has ended."""
    from distlaunch.google.jobs import JobState, state

    return 0 if state(job) is JobState.SUCCEEDED else EXIT_JOB_FAILED


def _follow(
    record: Record, jobs: Jobs, follower: JobFollower, view: ProgressView, options: FollowOptions
) -> int:
    from distlaunch.submit.launcher import follow_to_completion

    name = record.launch_id
    try:
        return follow_to_completion(record, jobs.session, follower, view)
    except KeyboardInterrupt:
        if show_final_state(follower.job, name, view):
            return exit_code(follower.job)
        if not options.cancel_on_interrupt:
            _warn(
                view,
                f"the job is still running; reattach with 'distlaunch logs --follow {name}', "
                f"cancel it with 'distlaunch cancel {name}'",
            )
            return EXIT_INTERRUPTED
    _cancel(record, jobs, follower, view)
    return EXIT_INTERRUPTED


def _cancel(record: Record, jobs: Jobs, follower: JobFollower, view: ProgressView) -> None:
    """Cancel the job and follow it to its end, or until Ctrl-C."""
    from distlaunch.submit.launcher import follow_to_completion

    name = record.launch_id
    try:
        view.handle(Notice("interrupted: cancelling the job (Ctrl-C again exits)"))
        jobs.cancel(str(record.resource))
    except KeyboardInterrupt:
        _warn(view, f"the cancellation is not confirmed; run 'distlaunch cancel {name}'")
        return
    try:
        follow_to_completion(record, jobs.session, follower, view)
    except KeyboardInterrupt:
        if not show_final_state(follower.job, name, view):
            _warn(view, f"cancellation requested; check it with 'distlaunch status {name}'")


def _warn(view: ProgressView, text: str) -> None:
    view.handle(Notice(f"interrupted: {text}", "warning"))
