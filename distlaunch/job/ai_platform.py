"""AI Platform's job format: the `config.yaml` with `trainingInput`, read and written losslessly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.job.sections import Section

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.job.model import Job
    from distlaunch.job.yaml_marks import Document


class TrainingInput(Section):
    """``trainingInput``: what ml.googleapis.com v1 called GoogleCloudMlV1__TrainingInput."""

    def dump(self) -> dict[str, Any]:
        """Return it as plain data in Google's JSON names; what was not set is not there."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class AiPlatformFile:
    """A file in AI Platform's format, with the places of what is in it.

    Parameters
    ----------
    path, document
        The file, and its text with the place of everything in it.
    training_input
        What is under ``trainingInput``.
    job_id, labels
        What stands beside it where the file is a whole job.
    """

    path: Path
    document: Document
    training_input: TrainingInput
    job_id: str | None
    labels: Mapping[str, str]

    def dump(self) -> dict[str, Any]:
        """Return the whole file as plain data in Google's JSON names."""
        raise NotImplementedError


def is_training_input(data: Mapping[str, Any]) -> bool:
    """Return whether a file's content is AI Platform's: ``trainingInput`` or a whole job with it."""
    return "trainingInput" in data or "training_input" in data


def read(document: Document, path: Path) -> AiPlatformFile:
    """Read a file in AI Platform's format, in camelCase or snake_case.

    Parameters
    ----------
    document
        The file's content.
    path
        The file, for what is told of its problems.

    Raises
    ------
    JobFileError
        With every problem of the file, each with line, column, value and what was expected.
    """
    raise NotImplementedError


def from_job(job: Job, image: str | None) -> tuple[TrainingInput, tuple[str, ...]]:
    """Write a job as AI Platform's format, with a note for each thing that it cannot say there.

    Parameters
    ----------
    job
        The job.
    image
        The job's own image, for the pools that have none of their own; None where it is not known.
    """
    raise NotImplementedError
