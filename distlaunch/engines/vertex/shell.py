"""The page with a shell in a task of a job, which Google's web access serves.

https://cloud.google.com/vertex-ai/docs/training/monitor-debug-interactive-shell
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.engines.api import TaskShell
from distlaunch.engines.vertex.jobs import parse_name
from distlaunch.engines.vertex.log_query import replica_of_task, without_trial
from distlaunch.errors import GoogleError

if TYPE_CHECKING:
    from distlaunch.engines.api import JobStatus


def find_shell(job: JobStatus, task: str, *, is_emulator: bool) -> TaskShell:
    """Return the page of a task's shell; that of a task without a trial is of any running trial.

    GoogleError is raised if the job has no web access, or the task has no shell yet.
    """
    if is_emulator and not job.web_access:
        raise GoogleError("the emulator has no web access", remedy=_in_emulator(job, task))
    if not job.request.web_access:
        raise GoogleError(
            f"{job.id}: was submitted without web access",
            remedy="set web_access: true in distlaunch.yaml, or run 'distlaunch resubmit "
            f"{job.id} --set web_access=true'",
        )
    for name, uri in job.web_access.items():
        if task in (name, without_trial(name)):
            return TaskShell(uri)
    names = ", ".join(job.web_access)
    text = f"{job.id}: no shell in {task} yet"
    raise GoogleError(
        f"{text}; there are: {names}" if names else text,
        remedy="Google opens them some time after the task's start: try again in a minute",
    )


def _in_emulator(job: JobStatus, task: str) -> str:
    """Return how to look into a task of the emulator, by the labels and names of its containers."""
    pool, _, index = replica_of_task(job.resource, task).partition("-")
    label = f"label=distlaunch-job={parse_name(job.name).id}"
    containers = f"docker ps --quiet --filter {label} --filter name={pool}-.*-{index}$"
    return (
        "its tasks are processes of this machine; with --run-with docker run: "
        f"docker exec -it $({containers}) sh"
    )
