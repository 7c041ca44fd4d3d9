"""`distlaunch shell`: look into a running task of a job."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

import click

from distlaunch.cli import completion, options
from distlaunch.cli.settings import show
from distlaunch.errors import DistlaunchError

if TYPE_CHECKING:
    from distlaunch.cli.settings import Settings
    from distlaunch.submit.lookup import LocatedJob

_BROWSER = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")  # variables of a machine with a browser


@click.command("shell")
@options.with_job
@click.option(
    "--task",
    metavar="TASK",
    shell_complete=completion.job_tasks,
    help="chief, worker:N, ps:N, evaluator:N, of a tuning job trial:N/TASK (default: the chief).",
)
@click.option("--print", "is_printed", is_flag=True, help="Only print the URL or the command.")
def command(_: Settings, located: LocatedJob, *, task: str | None, is_printed: bool) -> int:
    """Open a shell in a task of a running job.

    On Vertex AI it is a page in the browser, for jobs with web_access: true; the URL is printed. On
    Slurm it is a step of the job in this terminal. Without a terminal, URL or command are printed.
    """
    from distlaunch.engines.vertex.log_query import check_tasks, without_trial

    job = located.job
    if task:
        check_tasks([task], job.tasks[:-1])  # the last one is the platform
    if job.has_ended or job.state.is_before_running:
        verb = "ended" if job.has_ended else "not started"
        raise DistlaunchError(f"{job.id}: its tasks have {verb}: the job is {job.state}")
    shell = located.engine.shell(job, task or without_trial(job.tasks[0]))
    opens = not is_printed and sys.stdout.isatty()
    if isinstance(shell, tuple) and opens:
        import subprocess

        return subprocess.call(shell)
    show(shell if isinstance(shell, str) else shlex.join(shell))
    is_page = str(shell).startswith("https://")
    if opens and is_page and (sys.platform != "linux" or any(map(os.environ.get, _BROWSER))):
        import webbrowser

        webbrowser.open(str(shell))
    return 0
