"""The location of a problem: its key → file, line and column, or the option that set it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlaunch.checks.config_fields import ConfigFields, written
from distlaunch.errors import DistlaunchError
from distlaunch.job.load import FILE_NAME
from distlaunch.job.yaml_document import display_path

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from distlaunch.checks.problem import Problem
    from distlaunch.job.yaml_document import Document
    from distlaunch.submit.plan import LaunchRequest

_KEY = re.compile(r"[a-z_]+(\.[\w-]+)*")
_ONLY_IN_CONFIG = ("cluster.", "reduction_server")  # what --config replaces in distlaunch.yaml


def locate(problems: Iterable[Problem], order: LaunchRequest) -> tuple[Problem, ...]:
    """Return problems with the location of the keys that they are about.

    That is the option of the command line that set the key; else file, line and column. With
    ``--config`` keys and remedies are translated to the fields of that file.
    """
    own = _File(order.folder / FILE_NAME)
    config = _File(order.config) if order.config else None
    fields = ConfigFields(config.document.data) if config and config.document else None
    return tuple(
        _located(problem, order, own, config, fields) if _is_key(problem.where) else problem
        for problem in problems
    )


@dataclass(frozen=True, slots=True)
class _Match:
    """How much of a path a file has, and where."""

    steps: int
    location: str
    is_whole: bool


class _File:
    def __init__(self, path: Path) -> None:
        self.name = display_path(path)
        self.document = _document(path)

    def match(self, path: tuple[str | int, ...]) -> _Match:
        """Return the location of the longest part of a path that the file has."""
        matched: tuple[str | int, ...] = ()
        document = self.document
        if document is None:
            return _Match(0, self.name, is_whole=False)
        for step in path:
            names = (step, _snake_case(step)) if isinstance(step, str) else (step,)
            known = next((name for name in names if document.holds((*matched, name))), None)
            if known is None:
                break
            matched = (*matched, known)
        if not matched:
            return _Match(0, self.name, is_whole=False)
        mark = document.location(matched)
        location = f"{self.name}:{mark.line}:{mark.column}"
        return _Match(len(matched), location, is_whole=len(matched) == len(path))


def _located(
    problem: Problem,
    order: LaunchRequest,
    own: _File,
    config: _File | None,
    fields: ConfigFields | None,
) -> Problem:
    option = _option(problem, order)
    if option:
        return replace(problem, where=option)
    key = problem.where
    in_own = own.match(tuple(int(part) if part.isdecimal() else part for part in key.split(".")))
    path = fields.path(key) if fields else None
    if config and path is not None:
        in_config = config.match(path)
        is_in_own = in_own.is_whole or in_own.steps > in_config.steps
        if in_config.is_whole or key.startswith(_ONLY_IN_CONFIG) or not is_in_own:
            return replace(
                problem,
                where=f"{in_config.location}: {written(path)}",
                remedy=fields.translate(problem.remedy, key) if fields else problem.remedy,
            )
    return replace(problem, where=f"{in_own.location}: {key}")


def _option(problem: Problem, order: LaunchRequest) -> str | None:
    """Return the option of the command line that set a key or a part of it."""
    key = problem.where
    for override in order.overrides:
        name = override.partition("=")[0]
        if f"{key}.".startswith(f"{name}.") or f"{name}.".startswith(f"{key}."):
            return f"--set {name}"
    options = (word.partition("=")[0] for word in order.program_args if word.startswith("-"))
    if key == "args" and any(option in problem.what for option in options):
        return "arguments after --"
    return order.cli_overrides.get(key)


def _is_key(where: str) -> bool:
    from distlaunch.job.schema import JobSection

    return bool(_KEY.fullmatch(where)) and where.partition(".")[0] in JobSection.model_fields


def _snake_case(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def _document(path: Path) -> Document | None:
    from distlaunch.job.yaml_document import Document, YamlProblem, read_text

    try:
        return Document(read_text(path))
    except (DistlaunchError, YamlProblem):
        return None  # the job was read from it, or it does not exist
