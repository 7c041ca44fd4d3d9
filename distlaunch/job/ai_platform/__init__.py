"""AI Platform's job format, a ``config.yaml`` with ``trainingInput``, without loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.job.ai_platform.from_job import from_job
from distlaunch.job.ai_platform.models import AiPlatformJob, TrainingInput
from distlaunch.job.validation import validate
from distlaunch.job.yaml_document import YamlProblem, job_file_error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.job.yaml_document import Document

__all__ = ["AiPlatformFile", "TrainingInput", "from_job", "is_training_input", "read"]

_TRAINING = ("trainingInput", "training_input")
_PREDICTION = ("predictionInput", "prediction_input")
_FIELDS = ("scaleTier", "scale_tier", "masterType", "master_type", "masterConfig")


@dataclass(frozen=True, slots=True)
class AiPlatformFile:
    """A file in AI Platform's format, with the locations of its values."""

    path: Path
    document: Document
    job: AiPlatformJob

    @property
    def training_input(self) -> TrainingInput:
        """The content of ``trainingInput``."""
        return self.job.training_input


def is_training_input(data: Mapping[str, Any]) -> bool:
    """Return whether a file is in AI Platform's format, even if ``trainingInput`` is missing."""
    return not data.keys().isdisjoint({*_TRAINING, *_PREDICTION, *_FIELDS})


def read(document: Document, path: Path) -> AiPlatformFile:
    """Parse a file in camelCase or snake_case; raise all its problems as a JobFileError."""
    misplaced = _misplaced(document)
    if misplaced:
        raise job_file_error(path, [*document.problems, misplaced])
    job, problems = validate(document, AiPlatformJob)
    if job is None or problems:
        raise job_file_error(path, problems)
    return AiPlatformFile(path, document, job)


def _misplaced(document: Document) -> YamlProblem | None:
    """Return the problem of a file that is not a training job as a whole."""
    key = next((key for key in document.data if key in _PREDICTION), None)
    message = "a batch prediction, which ended with AI Platform; only training runs"
    if key is None and not any(key in document.data for key in _TRAINING):
        key = next(iter(document.data))
        message = "expected under 'trainingInput:', each line indented by two more spaces"
    if key is None:
        return None
    return YamlProblem(document.location((key,), of_key=True), f"{key}: {message}")
