"""AI Platform's job format, a ``config.yaml`` with ``trainingInput``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic.alias_generators import to_snake

from distlaunch.job.ai_platform.schema import AiPlatformJob
from distlaunch.job.validation import validate
from distlaunch.job.yaml_document import YamlProblem, job_file_error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.job.yaml_document import Document
    from distlaunch.job.yaml_document import Path as FieldPath

_TRAINING = ("trainingInput", "training_input")
_PREDICTION = ("predictionInput", "prediction_input")
_FIELDS = ("scaleTier", "scale_tier", "masterType", "master_type", "masterConfig")


@dataclass(slots=True)
class AiPlatformFile:
    """A file in AI Platform's format, in Google's JSON names, and a report of its translation.

    Warnings are about changed or ignored fields, errors about fields without an equivalent.
    """

    path: Path
    document: Document
    job: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    errors: list[YamlProblem] = field(default_factory=list)

    @property
    def training_input(self) -> dict[str, Any]:
        """The content of ``trainingInput``."""
        content: dict[str, Any] = self.job["trainingInput"]
        return content

    def warn(self, name: str, text: str) -> None:
        """Add a warning about a field of ``trainingInput``, such as ``masterConfig.imageUri``."""
        self.warnings.append(f"{name}: {text}")

    def error(self, name: str, text: str) -> None:
        """Add an error about a field of ``trainingInput``, with the choices."""
        path, exists = self._path(name)
        location = self.document.location(path, of_key=not exists)
        self.errors.append(YamlProblem(location, text, f"trainingInput.{name}"))

    def raise_errors(self) -> None:
        """Raise all errors, if there are any, as one JobFileError."""
        if self.errors:
            raise job_file_error(self.path, self.errors)

    def _path(self, name: str) -> tuple[FieldPath, bool]:
        """Return the path of a field as the file writes it, and whether all of it exists."""
        path: FieldPath = ()
        for part in ["trainingInput", *name.split(".")]:
            steps = [int(part)] if part.isdecimal() else [part, to_snake(part)]
            step = next((step for step in steps if self.document.holds((*path, step))), None)
            if step is None:
                return path, False
            path = (*path, step)
        return path, True


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
    return AiPlatformFile(path, document, job.model_dump(by_alias=True, exclude_none=True))


def _misplaced(document: Document) -> YamlProblem | None:
    """Return the problem of a file that is not a training job as a whole."""
    key = next((key for key in document.data if key in _PREDICTION), None)
    message = "a batch prediction, which ended with AI Platform; only training runs"
    if key is None and not any(key in document.data for key in _TRAINING):
        key = next(iter(document.data))
        message = "expected under 'trainingInput:', each line indented by two more spaces"
    if key is None:
        return None
    return YamlProblem(document.location((key,), of_key=True), message, key)
