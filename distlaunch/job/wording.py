"""How values and paths are shown in the lines that tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_VALUE = 40  # characters of a wrong value that are shown


def describe(value: Any) -> str:
    """Say what was found where something else was expected."""
    if isinstance(value, str):
        shown = value if len(value) <= LONGEST_VALUE else value[: LONGEST_VALUE - 1] + "…"
        return repr(shown)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    return "nothing" if not value else "a section"


def dotted(path: Iterable[str | int]) -> str:
    """Write a path as Google does, as ``jobSpec.workerPoolSpecs[0].replicaCount``."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in path]
    return "".join(steps).removeprefix(".")
