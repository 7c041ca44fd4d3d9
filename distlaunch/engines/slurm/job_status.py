"""The folder of a launch and what Slurm knows of its job → a `JobStatus`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch import timestamps
from distlaunch.engines.api import JobState, JobStatus
from distlaunch.errors import JobFileError
from distlaunch.job.load import job_from_data
from distlaunch.job.vertex.view import slurm_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.engines.slurm.commands import QueuedJob
    from distlaunch.engines.slurm.launch_folder import LaunchFolder

PLATFORM = "slurm"
"""The task name of what the batch script and srun print."""

_NO_TIME = ("0:00", "INVALID")  # of squeue's time left
_ERRORS = {
    "TIMEOUT": "the time limit was reached",
    "NODE_FAIL": "a node failed",
    "OUT_OF_MEMORY": "a task ran out of memory",
    "PREEMPTED": "another job took the nodes",
    "BOOT_FAIL": "a node did not start",
    "DEADLINE": "the deadline of the job was reached",
    "LAUNCH_FAILED": "the batch script could not be started",
}
"""What Slurm's words for the end of a job mean."""


class End(NamedTuple):
    """How a job ended."""

    state: JobState
    word: str  # Slurm's
    error: str
    time: str | None
    started: str | None = None


def read_status(folder: LaunchFolder, queue: Mapping[str, QueuedJob]) -> JobStatus | None:
    """Return the status of a launch, None if none is in the folder; `queue` is by number."""
    request = folder.read_request()
    number = folder.job_number
    if request is None or number is None:
        return None
    try:
        job = job_from_data(request["job"], (), ())
    except JobFileError:  # of another version
        return None
    queued = queue.get(number)
    if queued and queued.comment != folder.path.name:  # numbers may be used again
        queued = None
    end = None
    if queued is None or queued.state.is_terminal:
        end = _read_end(folder, queued)
    started = (end and end.started) or (queued and queued.started)
    is_waiting = queued is not None and queued.state.is_before_running
    return JobStatus(
        id=folder.path.name,
        name=str(folder.path),
        state=end.state if end else queued.state if queued else JobState.UNSPECIFIED,
        request=slurm_request(job),
        tasks=tasks_of(request),
        display_name=job.name,
        created=request.get("time") or (queued and queued.submitted),
        started=None if is_waiting else started,
        ended=end.time if end else None,
        error=end.error if end else "",
        job_dir=request["job_dir"],
        program=("python", "-m", *job.main, *job.args),
        scheduling={"job": number, "restarts": max(folder.attempts() - 1, 0)},
        resource={
            "request": request,
            "word": end.word if end else "",
            "waits_for": queued.reason if queued and is_waiting else "",
        },
    )


def tasks_of(request: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of a launch's tasks, the primary one first and the platform's last."""
    job = job_from_data(request["job"], (), ())
    return (*map(str, job.cluster.tasks()), PLATFORM)


def _read_end(folder: LaunchFolder, queued: QueuedJob | None) -> End:
    """Return how a job ended, by what it wrote or else by what Slurm knows.

    What Slurm knows is written into the folder, because it is forgotten.
    """
    end = folder.read_end()
    if queued and (end is None or queued.word in _ERRORS):
        end = (end or {}) | {"word": queued.word, "ended": timestamps.parse_or(queued.ended, 0.0)}
        folder.write_end(end)
    if end is None:
        state = JobState.CANCELLED if folder.is_cancelled else JobState.FAILED
        error = "" if folder.is_cancelled else "Slurm no longer knows the job, which wrote no end"
        return End(state, "", error, None)
    word = str(end.get("word") or _word(folder, end))
    states = {"COMPLETED": JobState.SUCCEEDED, "CANCELLED": JobState.CANCELLED}
    known = states.get(word)
    error = "" if known else _ERRORS.get(word, f"the job ended with exit code {end.get('code')}")
    started, ended = (end.get(key) for key in ("started", "ended"))
    return End(
        known or JobState.FAILED,
        word,
        error,
        timestamps.format(float(ended)) if ended else None,
        timestamps.format(float(started)) if started else None,
    )


def _word(folder: LaunchFolder, end: Mapping[str, Any]) -> str:
    """Return Slurm's word for what a job wrote of its end."""
    if end.get("code") == 0:
        return "COMPLETED"
    if not end.get("signal"):
        return "FAILED"
    # The script gets the same signal at the limit as at a cancel: the time that is left differs.
    is_timeout = end.get("left") in _NO_TIME and not folder.is_cancelled
    return "TIMEOUT" if is_timeout else "CANCELLED"
