"""What a translation has to tell: what it changed or dropped, and what it cannot translate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic.alias_generators import to_snake

from distlaunch.job.validation import refusal
from distlaunch.job.yaml_document import YamlProblem

if TYPE_CHECKING:
    from distlaunch.job.ai_platform import AiPlatformFile
    from distlaunch.job.yaml_document import Path


@dataclass(slots=True)
class Ledger:
    """The notes and the problems of one translation.

    A field is named as Google writes it, from ``trainingInput`` on: ``masterConfig.imageUri``.
    """

    file: AiPlatformFile
    notes: list[str] = field(default_factory=list)
    problems: list[YamlProblem] = field(default_factory=list)

    def note(self, name: str, text: str) -> None:
        """Take down that a field is changed or dropped, and why."""
        self.notes.append(f"{name}: {text}")

    def refuse(self, name: str, text: str) -> None:
        """Take down that a field has no faithful equivalent, and what to choose from."""
        path, is_there = self._path(name)
        place = self.file.document.place(path, of_key=not is_there)
        self.problems.append(YamlProblem(place, f"trainingInput.{name}: {text}"))

    def settle(self) -> None:
        """Raise all problems, if there are any.

        Raises
        ------
        JobFileError
            With a line each.
        """
        if self.problems:
            raise refusal(self.file.path, self.problems)

    def _path(self, name: str) -> tuple[Path, bool]:
        """Return the way to a field as the file writes it, or as far as it goes."""
        path: Path = ()
        here: Any = self.file.document.data
        for name_of_step in ["trainingInput", *name.split(".")]:
            step = _step(here, name_of_step)
            if step is None:
                return path, False
            path, here = (*path, step), here[step]
        return path, True


def _step(here: Any, name: str) -> str | int | None:
    """Return what leads on from a place: a name as it is written there, or an index of a list."""
    if isinstance(here, list):
        return int(name)
    written = (name, to_snake(name)) if isinstance(here, dict) else ()
    return next((key for key in written if key in here), None)
