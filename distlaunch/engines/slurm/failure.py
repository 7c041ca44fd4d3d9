"""The first failure of a job on Slurm, from the ends of its tasks and their output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch import files
from distlaunch.engines.api import JobState
from distlaunch.engines.slurm.job_status import PLATFORM
from distlaunch.failure_reasons import (
    KEPT_LINES,
    PREEMPTED,
    VICTIM,
    Cause,
    FailureReport,
    explain,
)
from distlaunch.tensorflow_noise import text_without_noise

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from distlaunch.engines.api import JobStatus
    from distlaunch.engines.slurm.launch_folder import LaunchFolder

# A log may have gigabytes, and the reason is in its last lines.
_LAST_BYTES = 1 << 14
_RESUME = "submit again with --job-dir of this job: it resumes from its last checkpoint"
_CAUSES = {
    "TIMEOUT": Cause(
        "the job reached its time limit",
        "submit with a longer slurm.time and --job-dir of this job: it resumes there",
    ),
    "NODE_FAIL": Cause("a node of the job failed", _RESUME),
    "BOOT_FAIL": Cause("a node of the job did not start", "submit the job again"),
    "PREEMPTED": PREEMPTED,
    "OUT_OF_MEMORY": Cause(
        "a task used more memory than the job has",
        "add --mem=SIZE to slurm.options, or use a smaller --batch-size",
    ),
}


class TaskEnd(NamedTuple):
    """How a task ended without success."""

    task: str
    code: int  # as a shell gives it
    ended: float  # seconds since 1970
    lines: tuple[str, ...]  # its last


def find_failure(folder: LaunchFolder, job: JobStatus) -> FailureReport | None:
    """Return the first failure of a job, None for one that has not failed.

    The task that ended first without success is named, unless it ended because another one did.
    """
    if job.state is not JobState.FAILED:
        return None
    ends = sorted(_failed_tasks(folder, job), key=lambda end: (_is_victim(end), end.ended))
    cause = _CAUSES.get(str(job.resource["word"]))
    if cause:
        return FailureReport.of(None, cause, ())
    if ends:
        first = ends[0]
        found = explain("\n".join(first.lines), exit_code=first.code)
        return FailureReport.of(first.task, found, first.lines)
    lines = _last_lines(folder.slurm_log)
    return FailureReport.of(PLATFORM if lines else None, explain("\n".join(lines)), lines)


def _failed_tasks(folder: LaunchFolder, job: JobStatus) -> Iterable[TaskEnd]:
    attempt = folder.attempt(folder.attempts())
    for task in job.tasks:
        stem = attempt.path / task.replace(":", "-")
        try:
            end: dict[str, Any] = files.read_object(stem.with_name(f"{stem.name}.end.json"))
        except (OSError, ValueError):
            continue
        code = 128 + int(end["signal"]) if end.get("signal") else int(end.get("code") or 0)
        if code:
            lines = _last_lines(stem.with_name(f"{stem.name}.log"))
            yield TaskEnd(task, code, float(end.get("ended") or 0.0), lines)


def _is_victim(end: TaskEnd) -> bool:
    return end.code == 143 or VICTIM.search("\n".join(end.lines[-2:])) is not None


def _last_lines(path: Path) -> tuple[str, ...]:
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - _LAST_BYTES, 0))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(text_without_noise(text).splitlines())[-KEPT_LINES:]
