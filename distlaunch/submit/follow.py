"""A job is followed to its end, or until Ctrl-C; imported when a job exists."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.engines.api import JobState, LogSelection, read_summary
from distlaunch.engines.vertex.client import is_loopback
from distlaunch.errors import EXIT_INTERRUPTED, EXIT_JOB_FAILED, EngineError
from distlaunch.events import JobFailed, Notice
from distlaunch.submit.launcher import job_goes_on
from distlaunch.text import next_steps

if TYPE_CHECKING:
    from distlaunch.engines.api import Engine, Follower, JobStatus
    from distlaunch.submit.launcher import Launched, Launcher
    from distlaunch.ui.console import Console
    from distlaunch.ui.progress_view import ProgressView


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """How a job is followed, and left on Ctrl-C."""

    selection: LogSelection | None  # of its log; None for its states and trials alone
    cancel_on_interrupt: bool = False
    max_wait: float | None = None  # seconds until a job that has not started is moved
    reattach: str = "logs --follow"  # the command that follows it again


def detach(console: Console, launched: Launched, launcher: Launcher, *, as_json: bool) -> None:
    """Leave a launched job running, and print its id."""
    submitted = show_submitted(console, launched)
    if launched.others:
        place = "other machines" if launched.choice.machines else "another region"
        console.log(f"a job that is not followed is not moved to {place}", "warning")
    launcher.close(launched.record)
    console.result(json.dumps(submitted) if as_json else launched.record.launch_id)


def follow_launch(
    launched: Launched, launcher: Launcher, view: ProgressView, options: FollowOptions
) -> int:
    """Follow a launched job, and return the exit code.

    If there are no machines for it, or it has not started after `max_wait` seconds, it is moved to
    the next machines or region of the launch, if there are any. An error leaves the launch open,
    so that the same command follows the job again.
    """
    while True:
        view.submitted(show_submitted(view.console, launched))
        follower = launcher.engine.follow(
            launched.job,
            options.selection,
            sleep=view.wait,
            max_wait=_wait_limit(launched, options.max_wait),
        )
        view.cost = partial(_cost_so_far, launcher.engine, follower)
        try:
            with job_goes_on(launched.record):
                view.stream(follower)
                if follower.is_stalled:
                    launcher.cancel_to_move(launched)
                    view.stream(follower)
        except KeyboardInterrupt:
            return _end_interrupted(launcher.engine, follower, view, options, (launcher, launched))
        moved = launcher.move(launched, follower.status)
        if moved is None:
            launcher.close(launched.record)
            return _show_end(launcher.engine, follower.status, view)
        launched = moved


def follow_job(engine: Engine, job: JobStatus, view: ProgressView, options: FollowOptions) -> int:
    """Follow a job that exists, and return the exit code."""
    follower = engine.follow(job, options.selection, sleep=view.wait)
    view.cost = partial(_cost_so_far, engine, follower)
    try:
        view.stream(follower)
    except KeyboardInterrupt:
        return _end_interrupted(engine, follower, view, options)
    show_failure(engine, follower.status, view)
    return _exit_code(follower.status)


def show_submitted(console: Console, launched: Launched) -> dict[str, str | None]:
    """Log a launched job's id, folder and page, and return them."""
    record, job = launched.record, launched.job
    url = None if record.endpoint else job.console
    console.log(f"submitted {record.launch_id}" + (f": {url}" if url else ""))
    if record.job_dir:
        console.log(f"job folder {record.job_dir}")
    if url and job.tensorboard:
        console.log(f"TensorBoard {job.tensorboard}")
    return {"job": record.launch_id, "name": record.resource, "console": url}


def show_failure(engine: Engine, job: JobStatus, view: ProgressView) -> None:
    """Show the first failure of a job that has failed."""
    report = engine.find_failure(job)
    if report:
        is_shown = report.task is not None and view.is_in_sight(report.task)
        view.handle(JobFailed(report, shows_lines=not is_shown))


def _cost_so_far(engine: Engine, follower: Follower) -> str:
    """Return the cost of a job so far in words, empty if it is not known or an emulator's."""
    from distlaunch.price import cost_so_far, describe_amount

    if is_loopback(engine.endpoint):
        return ""
    cost = cost_so_far(follower.status, Path.cwd())
    return f"{describe_amount(cost)} so far" if cost else ""


def _wait_limit(launched: Launched, max_wait: float | None) -> float | None:
    """Return the seconds after which a job that has not started is moved, None for no limit."""
    if launched.record.is_moving:  # by a command that was killed
        return 0.0
    return max_wait if launched.others else None


def _show_end(engine: Engine, job: JobStatus, view: ProgressView) -> int:
    """Show how a job has ended, and return the exit code."""
    commands = ["show"]
    if job.state is not JobState.SUCCEEDED:
        commands = ["show", "resubmit"]
        show_failure(engine, job, view)
    elif job.job_dir and view.shows_result:
        commands = ["fetch", "show"]
        summary = _read_summary(engine, job, view)
        if summary:
            view.summarise(summary)
        else:
            view.handle(Notice(f"done; the job's folder is {job.job_dir.rstrip('/')}"))
    if view.shows_result:
        view.handle(Notice(next_steps(f"{command} {job.id}" for command in commands)))
    return _exit_code(job)


def _read_summary(engine: Engine, job: JobStatus, view: ProgressView) -> dict[str, Any] | None:
    try:
        return read_summary(engine, job)
    except EngineError as error:  # the job has succeeded all the same
        view.handle(Notice(f"its summary cannot be read: {error}", "warning"))
        return None


def _end_interrupted(
    engine: Engine,
    follower: Follower,
    view: ProgressView,
    options: FollowOptions,
    launch: tuple[Launcher, Launched] | None = None,
) -> int:
    """Leave a job running on Ctrl-C or cancel it, and return the exit code.

    The launch is over, unless it is not known whether the job is cancelled.
    """
    name, is_over = follower.status.id, True
    launcher, record = (launch[0], launch[1].record) if launch else (None, None)
    if _show_final_state(follower.status, view):
        code = _exit_code(follower.status)
    elif options.cancel_on_interrupt:
        code = EXIT_INTERRUPTED
        try:
            with job_goes_on(record) if record else nullcontext():
                view.handle(Notice("interrupted: cancelling the job (Ctrl-C again exits)"))
                if launcher and record:
                    launcher.note_cancelled(record)
                engine.cancel(follower.status.name)
                view.stream(follower)
        except KeyboardInterrupt:
            is_over = False
            if not _show_final_state(follower.status, view):
                _warn(view, f"the cancellation is not confirmed; check 'distlaunch status {name}'")
    else:
        code = EXIT_INTERRUPTED
        _warn(
            view,
            f"the job is still running; reattach with 'distlaunch {options.reattach} {name}', "
            f"cancel it with 'distlaunch cancel {name}'",
        )
    if launcher and record and is_over:
        launcher.close(record)
    return code


def _show_final_state(job: JobStatus, view: ProgressView) -> bool:
    """Show the final state of a job after an interrupt; return False if it is still running."""
    if not job.has_ended:
        return False
    text = f"the job has ended: {job.state}; 'distlaunch logs {job.id}' shows all lines"
    view.handle(Notice(f"interrupted: {text}"))
    return True


def _exit_code(job: JobStatus) -> int:
    return 0 if job.state is JobState.SUCCEEDED else EXIT_JOB_FAILED


def _warn(view: ProgressView, text: str) -> None:
    view.handle(Notice(f"interrupted: {text}", "warning"))
