"""The location of a problem: its key → file, line and column, or the option that set it."""

from __future__ import annotations

import re
from dataclasses import replace
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


class _File:
    def __init__(self, path: Path) -> None:
        self.name = display_path(path)
        self.document = _document(path)

    def match(self, path: tuple[str | int, ...]) -> tuple[int, str]:
        """Return how many steps of a path the file has, and the location of the last one."""
        matched: tuple[str | int, ...] = ()
        for step in path if self.document else ():
            names = (step, _snake_case(step)) if isinstance(step, str) else (step,)
            known = [
                name for name in names if self.document and self.document.holds((*matched, name))
            ]
            if not known:
                break
            matched = (*matched, known[0])
        if not matched or not self.document:
            return 0, self.name
        mark = self.document.location(matched)
        return len(matched), f"{self.name}:{mark.line}:{mark.column}"


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
    own_path = tuple(int(step) if step.isdecimal() else step for step in key.split("."))
    own_steps, own_location = own.match(own_path)
    path = fields.path(key) if fields else None
    if config and fields and path is not None:
        steps, location = config.match(path)
        is_in_own = own_steps == len(own_path) or own_steps > steps
        if steps == len(path) or key.startswith(_ONLY_IN_CONFIG) or not is_in_own:
            remedy = fields.translate(problem.remedy, key)
            return replace(problem, where=f"{location}: {written(path)}", remedy=remedy)
    return replace(problem, where=f"{own_location}: {key}")


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
