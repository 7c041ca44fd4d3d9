"""An AI Platform job → a job of today, with a note for each thing that was changed or dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.job.ai_platform import AiPlatformFile
    from distlaunch.job.model import Job


@dataclass(frozen=True, slots=True)
class Translation:
    """A job, and what was changed or dropped on the way to it.

    Parameters
    ----------
    notes
        One line each, as ``masterType: standard_v100 is n1-standard-8 with a V100 today``.
    """

    job: Job
    notes: tuple[str, ...]


def to_job(
    file: AiPlatformFile,
    *,
    folder: Path,
    name: str | None = None,
    base: Job | None = None,
    image: str | None = None,
) -> Translation:
    """Translate a job of AI Platform Training, which ended in 2025, for Vertex AI.

    Parameters
    ----------
    file
        The job.
    folder
        The project's folder; a package job whose module lies there gets its image built from it.
    name
        What the job is called; by default the file's jobId, the base's name or the folder's.
    base
        What distlaunch.yaml says; the file's words win. Its cluster is not looked at.
    image
        An image given on the command line, for the pools that have none of their own.

    Raises
    ------
    JobFileError
        With every thing that has no faithful equivalent, each with line, column and the choices.
    """
    raise NotImplementedError
