"""A job is followed to its end, or until Ctrl-C; imported when a job exists."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from distlaunch.engines.vertex.client import is_loopback
from distlaunch.engines.vertex.follow import EMULATOR, GOOGLE, JobFollower
from distlaunch.engines.vertex.jobs import (
    JobState,
    console_url,
    has_ended,
    job_id,
    state,
    tensorboard_url,
)
from distlaunch.engines.vertex.log_query import task_names
from distlaunch.engines.vertex.log_reader import LogSelection
from distlaunch.events import Notice
from distlaunch.exit_codes import EXIT_INTERRUPTED, EXIT_JOB_FAILED
from distlaunch.submit import launcher as launches
from distlaunch.ui.progress_view import JsonProgressView, ProgressView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.engines.vertex.jobs import Jobs
    from distlaunch.submit.launcher import Launched, Launcher
    from distlaunch.submit.records import Record
    from distlaunch.ui.console import Console


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
    """Follow a launched job to its end, or exit, and return the exit code.

    Where its region has no machines for it, or it has not started after `max_wait` seconds, it is
    moved to the next region of the launch, if there is one. An error leaves the launch open, so
    that the same command follows the job again.
    """
    if detach:
        submitted = show_submitted(console, launched)
        if launched.next_regions:
            console.log("a job that is not followed is not moved to another region", "warning")
        launcher.close(launched.record)
        console.result(json.dumps(submitted) if as_json else launched.record.launch_id)
        return 0
    with job_view(console, task_names(launched.job), as_json=as_json) as view:
        while True:
            submitted = show_submitted(console, launched)
            if as_json:
                console.result(json.dumps({"event": "submitted", **submitted}))
            follower = _follower(
                launcher.jobs,
                launched.job,
                LogSelection(hide_noise=True),
                view,
                per_entry=as_json,
                max_wait=_wait_limit(launched, max_wait),
            )
            try:
                launches.follow_to_end(launched, launcher, follower, view)
            except KeyboardInterrupt:
                return _end_interrupted(
                    launched.record, launcher, follower, view, cancel=cancel_on_interrupt
                )
            moved = launcher.move(launched, follower.job)
            if moved is None:
                launcher.close(launched.record)
                return launches.show_end(launched, launcher.jobs, follower.job, view)
            launched = moved


def show_submitted(console: Console, launched: Launched) -> dict[str, str | None]:
    """Log a launched job's id, folder and page in Google's console, and return them."""
    record, job = launched.record, launched.job
    url = None if record.endpoint else console_url(job, record.project)
    console.log(f"submitted {record.launch_id}" + (f": {url}" if url else ""))
    if record.job_dir:
        console.log(f"job folder {record.job_dir}")
    if url and (board := tensorboard_url(job)):
        console.log(f"TensorBoard {board}")
    return {"job": record.launch_id, "name": record.resource, "console": url}


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
    launches.show_failure(jobs, follower.job, view)
    return _exit_code(follower.job)


def _wait_limit(launched: Launched, max_wait: float | None) -> float | None:
    """Return the seconds after which a job that has not started is moved, None for no limit."""
    if launched.record.is_moving:  # by a command that was killed
        return 0.0
    return max_wait if launched.next_regions else None


def _follower(
    jobs: Jobs,
    job: Mapping[str, Any],
    selection: LogSelection,
    view: ProgressView,
    *,
    per_entry: bool,
    max_wait: float | None = None,
) -> JobFollower:
    return JobFollower(
        jobs,
        job,
        selection=selection,
        per_entry=per_entry,
        max_wait=max_wait,
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
    record: Record, launcher: Launcher, follower: JobFollower, view: ProgressView, *, cancel: bool
) -> int:
    """Leave the job running or cancel it, and return the exit code."""
    name = record.launch_id
    if _show_final_state(follower.job, name, view):
        launcher.close(record)
        return _exit_code(follower.job)
    if not cancel:
        launcher.close(record)
        _warn(
            view,
            f"the job is still running; reattach with 'distlaunch logs --follow {name}', "
            f"cancel it with 'distlaunch cancel {name}'",
        )
        return EXIT_INTERRUPTED
    try:
        with launches.job_goes_on(record):
            view.handle(Notice("interrupted: cancelling the job (Ctrl-C again exits)"))
            launcher.note_cancelled(record)
            launcher.jobs.cancel(str(record.resource))
            view.stream(follower)
        launcher.close(record)
    except KeyboardInterrupt:
        if not _show_final_state(follower.job, name, view):
            _warn(view, f"the cancellation is not confirmed; check 'distlaunch status {name}'")
    return EXIT_INTERRUPTED


def _warn(view: ProgressView, text: str) -> None:
    view.handle(Notice(f"interrupted: {text}", "warning"))
