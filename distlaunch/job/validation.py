"""What is wrong in a document, each thing with its place, its value and what was expected."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from distlaunch.errors import JobFileError, did_you_mean
from distlaunch.job.schema import EXPECTED
from distlaunch.job.wording import describe
from distlaunch.job.yaml_document import YamlProblem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic_core import ErrorDetails

    from distlaunch.job.yaml_document import Marked

_EXPECTED_BY_ERROR = {
    "dict_type": "names with values, one a line",
    "list_type": "a list, as [first, second]",
    "tuple_type": "a list, as [first, second]",
    "too_short": "one or more",
}

_MOST_SHOWN = 100  # problems of a file

_S = TypeVar("_S", bound=BaseModel)


def validate(document: Marked, root: type[_S]) -> tuple[_S | None, list[YamlProblem]]:
    """Read a document as a section, and return it with all problems.

    Parameters
    ----------
    document
        The text.
    root
        The section that the whole document is; where it has no problems it is returned.
    """
    try:
        return root.model_validate(document.data), list(document.problems)
    except ValidationError as error:
        found = [
            _problem(document, root, detail, with_hint=index < _MOST_SHOWN)
            for index, detail in enumerate(error.errors())
        ]
        return None, document.problems + found


def refusal(path: Path, problems: Iterable[YamlProblem]) -> JobFileError:
    """Return the error with a file's first problems, in the order of their places."""
    in_order = sorted(problems, key=lambda problem: (problem.place.line, problem.place.column))
    lines = [_line(path, problem) for problem in in_order[:_MOST_SHOWN]]
    if len(in_order) > _MOST_SHOWN:
        lines.append(f"{shown(path)}: and {len(in_order) - _MOST_SHOWN:,} more problems")
    return JobFileError(lines)


def _line(path: Path, problem: YamlProblem) -> str:
    place = problem.place
    if not place.option:
        return f"{shown(path)}:{place.line}:{place.column}: {problem.what}"
    return f"{place.option}: {_without_name(place.option, problem.what)}"


def _without_name(option: str, what: str) -> str:
    """Return what is wrong without the name in front of it, where the option has said it."""
    said = option.rsplit(" ", maxsplit=1)[-1]
    in_brackets = re.sub(r"\.([0-9]+)(?=\.|$)", r"[\1]", said)
    for name in (said, in_brackets, said.removeprefix("--").lower()):
        if what.startswith(f"{name}: "):
            return what.removeprefix(f"{name}: ")
    return what


def shown(path: Path) -> str:
    """Return a path as it is shortest to read from here."""
    here = Path.cwd()
    full = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
    return str(full.relative_to(here) if full.is_relative_to(here) else path)


def _problem(
    document: Marked, root: type[BaseModel], detail: ErrorDetails, *, with_hint: bool
) -> YamlProblem:
    of_key = detail["loc"][-1:] == ("[key]",)
    path = detail["loc"][:-1] if of_key else detail["loc"]
    name = ".".join(str(step) for step in path)
    what = _what(root, path, detail, with_hint=with_hint)
    at_key = of_key or detail["type"] in ("extra_forbidden", "missing")
    return YamlProblem(document.place(path, of_key=at_key), f"{name}: {what}")


def _what(
    root: type[BaseModel], path: tuple[int | str, ...], detail: ErrorDetails, *, with_hint: bool
) -> str:
    """Say what is wrong at a path, and what was expected there."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        known = _keys_at(root, path[:-1])
        hint = did_you_mean(str(path[-1]), known) if with_hint else ""
        return f"unknown key{hint or '; known here: ' + ', '.join(known)}"
    if kind == EXPECTED:
        expected, hint = context["expected"], context["hint"]
    elif kind == "model_type":
        expected, hint = f"a section with {', '.join(_keys_at(root, path))}", ""
    else:
        expected, hint = _EXPECTED_BY_ERROR.get(kind, detail["msg"]), ""
    return f"expected {expected}, got {describe(detail['input'])}{hint}"


def _keys_at(root: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the section that a path leads to."""
    section = root
    steps = iter(path)
    for step in steps:
        annotation = _fields(section)[str(step)]
        section = _section_in(annotation)
        if _holds_several(annotation):
            next(steps)
    return [field.alias or name for name, field in section.model_fields.items()]


def _fields(section: type[BaseModel]) -> dict[str, Any]:
    """Return the annotations of a section's fields, by each name that they can be written with."""
    fields = section.model_fields
    by_alias = {field.alias: field.annotation for field in fields.values() if field.alias}
    return by_alias | {name: field.annotation for name, field in fields.items()}


def _holds_several(annotation: Any) -> bool:
    kinds = [annotation, *get_args(annotation)]
    return any(get_origin(kind) in (dict, list, tuple) for kind in kinds)


def _section_in(annotation: Any) -> type[BaseModel]:
    """Return the section that an annotation such as ``PoolSection | None`` names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    parts = [part for part in get_args(annotation) if part not in (type(None), ...)]
    return next(_section_in(part) for part in reversed(parts))
