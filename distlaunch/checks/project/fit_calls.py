"""Programs that call Keras's fit() by themselves, which does not train on several tasks."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.checks.problem import warning
from distlaunch.resources import TRAINER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distlaunch.checks.problem import Problem
    from distlaunch.job.vertex.view import JobRequest

FIT_ALONE = "fit() of Keras 3 does not train one model on several tasks by itself"

_USES_TENSORFLOW = re.compile(r"\b(tensorflow|keras)\b")


@dataclass(frozen=True, slots=True)
class PythonProgram:
    """A Python file or module of a project, which the trainer package's `fit` could run."""

    folder: Path  # the project's
    key: str  # of the job file: script or script_module
    name: str
    files: tuple[Path, ...]  # it, and those beside it

    @classmethod
    def of_module(cls, folder: Path, module: str) -> PythonProgram | None:
        """Return a module of a project, None if it is none, or uses the trainer package."""
        path = folder.joinpath(*module.split("."))
        paths = (path.with_suffix(".py"), path / "__main__.py")
        own = next((path for path in paths if path.is_file()), None)
        if own is None:
            return None
        beside = own.parent.glob("*.py") if own.parent != folder else ()
        return cls._of_files(folder, "script_module", module, (own, *sorted({*beside} - {own})))

    @classmethod
    def of_words(cls, folder: Path, words: Sequence[str]) -> PythonProgram | None:
        """Return what ``python FILE`` or ``python -m MODULE`` runs, None for other programs."""
        if not words or not Path(words[0]).name.startswith("python"):
            return None
        rest = [*words[1:]]
        while rest and rest[0].startswith("-") and rest[0] not in ("-c", "-m"):
            del rest[0]
        if rest[:1] == ["-m"]:
            return cls.of_module(folder, rest[1]) if len(rest) > 1 else None
        if not rest or not rest[0].endswith(".py") or not (folder / rest[0]).is_file():
            return None
        return cls._of_files(folder, "script", rest[0], (folder / rest[0],))

    @classmethod
    def _of_files(
        cls, folder: Path, key: str, name: str, files: tuple[Path, ...]
    ) -> PythonProgram | None:
        texts = [_text(file) for file in files]
        is_ours = any(TRAINER in text for text in texts)
        is_tensorflow = any(map(_USES_TENSORFLOW.search, texts))
        return cls(folder, key, name, files) if is_tensorflow and not is_ours else None

    @property
    def remedy(self) -> str:
        """The line of the job file with which the program trains on all tasks."""
        return f"{self.key}: {self.name}"

    def fit_call(self) -> str | None:
        """Return the first call of ``fit`` as FILE:LINE, None if there is none."""
        for file in self.files:
            if line := _fit_line(_text(file)):
                return f"{file.relative_to(self.folder).as_posix()}:{line}"
        return None


def fit_problems(folder: Path, module: str, request: JobRequest) -> Iterator[Problem]:
    """Yield a warning if a module that several tasks run calls fit() by itself."""
    tasks = sum(pool.replicas for pool in request.pools if pool.is_training)
    program = PythonProgram.of_module(folder, module)
    if tasks > 1 and program and (where := program.fit_call()):
        remedy = f"write {program.remedy} in place of module"
        yield warning("fit-alone", where, FIT_ALONE, remedy)


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _fit_line(source: str) -> int | None:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    lines = (
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "fit"
    )
    return min(lines, default=None)
