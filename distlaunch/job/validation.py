"""Validation of a document against a schema: every problem with its location and value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from distlaunch.errors import did_you_mean
from distlaunch.job.value_types import EXPECTED
from distlaunch.job.yaml_document import YamlProblem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic_core import ErrorDetails

    from distlaunch.job.yaml_document import Document

_LONGEST_VALUE = 40  # characters of a wrong value that are shown
_MOST_HINTS = 100  # each compares with all known names
_EXPECTED = {
    "bool": "true or false",
    "dict": "names with values, one a line",
    "finite": "a number",
    "float": "a number",
    "greater": "a whole number of {ge} or more",
    "greater_than": "a number above {gt:g}",
    "int": "a whole number",
    "list": "a list, such as [first, second]",
    "too": "one or more",
    "tuple": "a list, such as [first, second]",
}  # by the error's type, or its first word

_S = TypeVar("_S", bound=BaseModel)


def validate(document: Document, root: type[_S]) -> tuple[_S | None, list[YamlProblem]]:
    """Validate a document as a section; return the section (None if invalid) and all problems."""
    try:
        return root.model_validate(document.data), list(document.problems)
    except ValidationError as error:
        problems = [
            _problem(document, root, detail, with_hint=index < _MOST_HINTS)
            for index, detail in enumerate(error.errors())
        ]
        return None, document.problems + problems


def describe_value(value: Any) -> str:
    """Describe the value that was found where another was expected."""
    if isinstance(value, str):
        is_long = len(value) > _LONGEST_VALUE
        return repr(f"{value[: _LONGEST_VALUE - 1]}…" if is_long else value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    return "nothing" if not value else "a section"


def dotted_path(path: Iterable[str | int]) -> str:
    """Write a path as Google does: ``jobSpec.workerPoolSpecs[0].replicaCount``."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in path]
    return "".join(steps).removeprefix(".")


def _problem(
    document: Document, root: type[BaseModel], detail: ErrorDetails, *, with_hint: bool
) -> YamlProblem:
    of_key = detail["loc"][-1:] == ("[key]",)
    path = detail["loc"][:-1] if of_key else detail["loc"]
    name = ".".join(str(step) for step in path)
    message = _message(root, path, detail, with_hint=with_hint)
    at_key = of_key or detail["type"] in ("extra_forbidden", "missing")
    return YamlProblem(document.location(path, of_key=at_key), message, name)


def _message(
    root: type[BaseModel], path: tuple[int | str, ...], detail: ErrorDetails, *, with_hint: bool
) -> str:
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
        template = _EXPECTED.get(kind) or _EXPECTED.get(kind.partition("_")[0])
        expected, hint = template.format(**context) if template else detail["msg"], ""
    return f"expected {expected}, got {describe_value(detail['input'])}{hint}"


def _keys_at(root: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the section at a path."""
    section = root
    steps = iter(path)
    for step in steps:
        annotation = _annotations(section)[str(step)]
        section = _section_in(annotation)
        if _is_collection(annotation):
            next(steps)
    return [field.alias or name for name, field in section.model_fields.items()]


def _annotations(section: type[BaseModel]) -> dict[str, Any]:
    """Return the annotations of a section's fields, by name and by alias."""
    fields = section.model_fields
    by_alias = {field.alias: field.annotation for field in fields.values() if field.alias}
    return by_alias | {name: field.annotation for name, field in fields.items()}


def _is_collection(annotation: Any) -> bool:
    kinds = [annotation, *get_args(annotation)]
    return any(get_origin(kind) in (dict, list, tuple) for kind in kinds)


def _section_in(annotation: Any) -> type[BaseModel]:
    """Return the section of an annotation such as ``PoolSection | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    parts = [part for part in get_args(annotation) if part not in (type(None), ...)]
    return next(_section_in(part) for part in reversed(parts))
