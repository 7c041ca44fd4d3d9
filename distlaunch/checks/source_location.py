"""Where the job file says what a problem is about: the key of a problem → its line and column."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from distlaunch.errors import DistlaunchError
from distlaunch.job.load import FILE_NAME
from distlaunch.job.yaml_document import display_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from distlaunch.checks.problem import Problem
    from distlaunch.job.yaml_document import Document
    from distlaunch.submit.plan import LaunchRequest

_KEY = re.compile(r"[a-z_]+(\.[\w-]+)*")


def locate(problems: Iterable[Problem], order: LaunchRequest) -> tuple[Problem, ...]:
    """Return problems with the file, line and column of the keys that they are about.

    A key that no file says stays with the name of the file that could say it; in place of one that
    the command line says stands its option.
    """
    files = {path: _document(path) for path in _files(order)}
    return tuple(
        replace(each, where=_said_at(each, order) or _in_file(each.where, order, files))
        if _is_key(each.where)
        else each
        for each in problems
    )


def _said_at(problem: Problem, order: LaunchRequest) -> str | None:
    """Return what says a key, or a part of it, on the command line, if anything does."""
    where = problem.where
    for said in order.overrides:
        name = said.partition("=")[0]
        if f"{where}.".startswith(f"{name}.") or f"{name}.".startswith(f"{where}."):
            return f"--set {name}"
    options = (word.partition("=")[0] for word in order.program_args if word.startswith("-"))
    if where == "args" and any(option in problem.what for option in options):
        return "behind --"
    return order.cli_overrides.get(where)


def _files(order: LaunchRequest) -> list[Path]:
    """Return the files that a job was read from, the one whose word wins first."""
    own = order.folder / FILE_NAME
    return [own] if order.config is None else [order.config, own]


def _is_key(where: str) -> bool:
    from distlaunch.job.schema import JobSection

    found = _KEY.fullmatch(where)
    return found is not None and where.partition(".")[0] in JobSection.model_fields


def _in_file(where: str, order: LaunchRequest, files: Mapping[Path, Document | None]) -> str:
    if order.config is not None and where.startswith("cluster."):
        return f"{display_path(order.config)}: {where.removeprefix('cluster.')}"
    return _place(where, files)


def _place(where: str, files: Mapping[Path, Document | None]) -> str:
    steps = tuple(int(step) if step.isdecimal() else step for step in where.split("."))
    for length in range(len(steps), 0, -1):
        for path, document in files.items():
            if document and document.holds(steps[:length]):
                mark = document.location(steps[:length])
                return f"{display_path(path)}:{mark.line}:{mark.column}: {where}"
    return f"{display_path(next(iter(files)))}: {where}"


def _document(path: Path) -> Document | None:
    from distlaunch.job.yaml_document import Document, YamlProblem, read_text

    try:
        return Document(read_text(path))
    except (DistlaunchError, YamlProblem):
        return None  # what is wrong with it was told when the job was read
