"""A job is followed to its end, or until Ctrl-C; imported when a job exists."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from distlaunch.exit_codes import EXIT_INTERRUPTED, EXIT_JOB_FAILED
from distlaunch.google.client import is_loopback
from distlaunch.google.follow import EMULATOR, GOOGLE, JobFollower
from distlaunch.google.jobs import JobState, console_url, has_ended, job_id, state
from distlaunch.google.logs import task_names
from distlaunch.google.tail import LogSelection
from distlaunch.submit import launcher as launches
from distlaunch.ui.events import Notice
from distlaunch.ui.progress_view import JsonProgressView, ProgressView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.google.jobs import Jobs
    from distlaunch.submit.launcher import Launched, Launcher
    from distlaunch.submit.records import Record
    from distlaunch.ui.console import Console


def follow_or_detach(
    console: Console,
    launched: Launched,
    launcher: Launcher,
    jobs: Jobs,
    *,
    detach: bool,
    cancel_on_interrupt: bool,
    as_json: bool,
) -> int:
    """Follow a launched job to its end, or exit, and return the exit code."""
    record, job = launched
    try:
        url = show_submitted(console, launched)
        submitted = {"job": record.launch_id, "name": record.resource, "console": url}
        if detach:
            console.result(json.dumps(submitted) if as_json else record.launch_id)
            return 0
        if as_json:
            console.result(json.dumps({"event": "submitted", **submitted}))
        with job_view(console, task_names(job), as_json=as_json) as view:
            selection = LogSelection(hide_noise=True)
            follower = _follower(jobs, job, selection, view, per_entry=as_json)
            try:
                return launches.follow_to_completion(record, jobs.session, follower, view)
            except KeyboardInterrupt:
                return _end_interrupted(record, jobs, follower, view, cancel=cancel_on_interrupt)
    finally:
        launcher.close(record)


def show_submitted(console: Console, launched: Launched) -> str | None:
    """Log a launched job's id and folder, and return the URL of its page in Google's console."""
    record, job = launched
    url = None if record.endpoint else console_url(job, record.project)
    console.log(f"submitted {record.launch_id}" + (f": {url}" if url else ""))
    if record.job_dir:
        console.log(f"job folder {record.job_dir}")
    return url


def job_view(console: Console, tasks: tuple[str, ...], *, as_json: bool) -> ProgressView:
    """Return the view of a job's events, for a person or a script."""
    return (JsonProgressView if as_json else ProgressView)(console, tasks)


def follow_log(
    jobs: Jobs,
    job: Mapping[str, Any],
    selection: LogSelection,
    view: ProgressView,
    *,
    per_entry: bool,
) -> int:
    """Show lines and states until a job has ended, and return the exit code."""
    follower = _follower(jobs, job, selection, view, per_entry=per_entry)
    try:
        view.stream(follower)
    except KeyboardInterrupt:
        name = job_id(job)
        if not _show_final_state(follower.job, name, view):
            text = f"the job is still running; cancel it with 'distlaunch cancel {name}'"
            view.handle(Notice(text))
            raise
    return _exit_code(follower.job)


def _follower(
    jobs: Jobs,
    job: Mapping[str, Any],
    selection: LogSelection,
    view: ProgressView,
    *,
    per_entry: bool,
) -> JobFollower:
    return JobFollower(
        jobs,
        job,
        selection=selection,
        per_entry=per_entry,
        intervals=EMULATOR if is_loopback(jobs.session.endpoint) else GOOGLE,
        sleep=view.wait,
    )


def _show_final_state(job: Mapping[str, Any], name: str, view: ProgressView) -> bool:
    """Show the final state of a job after an interrupt; return False if it is still running."""
    if not has_ended(job):
        return False
    text = f"interrupted: the job has ended: {state(job)}; 'distlaunch logs {name}' shows all lines"
    view.handle(Notice(text))
    return True


def _exit_code(job: Mapping[str, Any]) -> int:
    return 0 if state(job) is JobState.SUCCEEDED else EXIT_JOB_FAILED


def _end_interrupted(
    record: Record, jobs: Jobs, follower: JobFollower, view: ProgressView, *, cancel: bool
) -> int:
    """Leave the job running or cancel it, and return the exit code."""
    name = record.launch_id
    if _show_final_state(follower.job, name, view):
        return _exit_code(follower.job)
    if not cancel:
        _warn(
            view,
            f"the job is still running; reattach with 'distlaunch logs --follow {name}', "
            f"cancel it with 'distlaunch cancel {name}'",
        )
        return EXIT_INTERRUPTED
    try:
        view.handle(Notice("interrupted: cancelling the job (Ctrl-C again exits)"))
        jobs.cancel(str(record.resource))
        launches.follow_to_completion(record, jobs.session, follower, view)
    except KeyboardInterrupt:
        if not _show_final_state(follower.job, name, view):
            _warn(view, f"the cancellation is not confirmed; check 'distlaunch status {name}'")
    return EXIT_INTERRUPTED


def _warn(view: ProgressView, text: str) -> None:
    view.handle(Notice(f"interrupted: {text}", "warning"))
