"""`distlaunch shell`: look into a running task of a job."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from distlaunch.cli import completion, options
from distlaunch.cli.settings import show
from distlaunch.errors import DistlaunchError

if TYPE_CHECKING:
    from distlaunch.cli.settings import Settings
    from distlaunch.submit.lookup import LocatedJob

_DISPLAYS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")  # variables of a machine with a browser


@click.command("shell")
@options.with_job
@click.option(
    "--task",
    metavar="TASK",
    shell_complete=completion.job_tasks,
    help="chief, worker:N, ps:N, evaluator:N, of a tuning job trial:N/TASK (default: the chief).",
)
@click.option(
    "--print", "is_printed", is_flag=True, help="Print the URL or the command, and open nothing."
)
def command(_: Settings, located: LocatedJob, *, task: str | None, is_printed: bool) -> int:
    """Open a shell in a task of a running job.

    On Vertex AI the job needs web_access: true, and the shell is a page in the browser, whose URL
    is also printed. On Slurm it is a step of the job, in this terminal. Without a terminal the URL
    or the command is printed.
    """
    from distlaunch.engines.vertex.log_query import check_tasks, without_trial

    job = located.job
    if task:
        check_tasks([task], job.tasks[:-1])  # the last one is the platform
    if job.has_ended or job.state.is_before_running:
        text = "its tasks have ended" if job.has_ended else "its tasks have not started"
        remedy = "" if job.has_ended else f"'distlaunch status {job.id} --watch' waits for them"
        raise DistlaunchError(f"{job.id}: is {job.state}: {text}", remedy=remedy)
    shell = located.engine.shell(job, task or without_trial(job.tasks[0]))
    opens = not is_printed and sys.stdout.isatty()
    if opens and shell.command:
        import subprocess

        return subprocess.call(shell.command)
    show(str(shell))
    if opens and (sys.platform != "linux" or any(map(os.environ.get, _DISPLAYS))):
        import webbrowser

        webbrowser.open(shell.uri)
    return 0
