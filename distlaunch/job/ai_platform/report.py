"""The warnings and errors of a translation from AI Platform's format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic.alias_generators import to_snake

from distlaunch.job.yaml_document import YamlProblem, job_file_error

if TYPE_CHECKING:
    from distlaunch.job.ai_platform import AiPlatformFile
    from distlaunch.job.yaml_document import Path


@dataclass(slots=True)
class TranslationReport:
    """Warnings about changed or ignored fields, and errors for those without an equivalent.

    A field has Google's name, from ``trainingInput`` on: ``masterConfig.imageUri``.
    """

    file: AiPlatformFile
    warnings: list[str] = field(default_factory=list)
    errors: list[YamlProblem] = field(default_factory=list)

    def warn(self, name: str, text: str) -> None:
        """Add a warning: a field is changed or ignored, and why."""
        self.warnings.append(f"{name}: {text}")

    def error(self, name: str, text: str) -> None:
        """Add an error: a field has no equivalent, and the choices."""
        path, exists = self._path(name)
        location = self.file.document.location(path, of_key=not exists)
        self.errors.append(YamlProblem(location, f"trainingInput.{name}: {text}"))

    def raise_errors(self) -> None:
        """Raise all errors, if there are any, as one JobFileError."""
        if self.errors:
            raise job_file_error(self.file.path, self.errors)

    def _path(self, name: str) -> tuple[Path, bool]:
        """Return the path of a field as the file writes it, and whether all of it exists."""
        path: Path = ()
        section: Any = self.file.document.data
        for part in ["trainingInput", *name.split(".")]:
            step = _existing_step(section, part)
            if step is None:
                return path, False
            path, section = (*path, step), section[step]
        return path, True


def _existing_step(section: Any, name: str) -> str | int | None:
    """Return a name as the section writes it, or an index of a list; None if it is not there."""
    if isinstance(section, list):
        return int(name)
    written = (name, to_snake(name)) if isinstance(section, dict) else ()
    return next((key for key in written if key in section), None)
