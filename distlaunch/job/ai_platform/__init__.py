"""AI Platform's job format: the `config.yaml` with `trainingInput`, read and written losslessly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.job.ai_platform.from_job import from_job
from distlaunch.job.ai_platform.models import (
    TOLD_BY_THE_SERVICE,
    AiPlatformJob,
    TrainingInput,
    camel,
)
from distlaunch.job.validation import refusal, validate
from distlaunch.job.yaml_document import YamlProblem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.job.yaml_document import Document

__all__ = ["AiPlatformFile", "TrainingInput", "from_job", "is_training_input", "read"]

_TOP = ("trainingInput", "training_input")
_ONLY_HERE = {"scaleTier", "scale_tier", "masterType", "master_type", "masterConfig"}
_PREDICTION = {"predictionInput", "prediction_input"}


@dataclass(frozen=True, slots=True)
class AiPlatformFile:
    """A file in AI Platform's format, with the places of what is in it.

    Parameters
    ----------
    path, document
        The file, and its text with the place of everything in it.
    job
        What it says.
    """

    path: Path
    document: Document
    job: AiPlatformJob

    @property
    def training_input(self) -> TrainingInput:
        """What is under ``trainingInput``."""
        return self.job.training_input

    def dump(self) -> dict[str, Any]:
        """Return the whole file as plain data in Google's JSON names."""
        # All of these are text to the API but trainingOutput, even an etag such as 00e0.
        told = {
            camel(key): value if isinstance(value, str) else self.document.typed(key)
            for key, value in self.document.data.items()
            if camel(key) in TOLD_BY_THE_SERVICE and value is not None
        }
        return self.job.model_dump(mode="json", by_alias=True, exclude_none=True) | told


def is_training_input(data: Mapping[str, Any]) -> bool:
    """Return whether a file's content is AI Platform's: ``trainingInput`` or a whole job with it.

    What stands under ``trainingInput`` counts too where it stands alone; `read` tells where it
    belongs.
    """
    return not (
        data.keys().isdisjoint({*_TOP, *_PREDICTION}) and data.keys().isdisjoint(_ONLY_HERE)
    )


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
    misplaced = _misplaced(document)
    if misplaced:
        raise refusal(path, [*document.problems, *misplaced])
    job, problems = validate(document, AiPlatformJob)
    if job is None or problems:
        raise refusal(path, problems)
    return AiPlatformFile(path, document, job)


def _misplaced(document: Document) -> list[YamlProblem]:
    """Return the problem of a file that is no training job as a whole, if it is none."""
    for key in document.data:
        if key in _PREDICTION:
            what = f"{key}: a batch prediction, which ended with AI Platform; only training runs"
            return [YamlProblem(document.place((key,), of_key=True), what)]
    if any(key in document.data for key in _TOP):
        return []
    first = next(iter(document.data))
    what = f"{first}: expected under 'trainingInput:', each line two spaces further in"
    return [YamlProblem(document.place((first,), of_key=True), what)]
