"""What the command line says over a file: ``--set cluster.workers.count=7`` and its like."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.errors import UsageError
from distlaunch.job.yaml_document import Document, Place, YamlProblem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.job.yaml_document import Path

_STEP = re.compile(r"""(?P<quote>["'])(?P<quoted>.*?)(?P=quote)|(?P<plain>[^."'\s]+)""")
_EXAMPLE = "expected as cluster.workers.count=7"
_STRUCTURED = ("[", "{", '"', "'")  # what a value begins with that is more than a word


@dataclass(frozen=True, slots=True)
class Override:
    """A value for one path of the job file.

    Parameters
    ----------
    path
        Where it belongs.
    value
        Text, a list or a section, or None for nothing.
    option
        What says it on the command line, as ``--set cluster.workers.count``.
    """

    path: tuple[str, ...]
    value: Any
    option: str

    @classmethod
    def parse(cls, text: str) -> Override:
        """Read ``a.b=c``; names with dots stand in quotes, and items of a list are counted from 0.

        A value is taken as it stands, but for lists, sections and quotes, which are YAML.

        Raises
        ------
        UsageError
            If that is no assignment.
        """
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {_printable(text)}: no value; {_EXAMPLE}")
        return cls(_path(name), _value(name, value), f"--set {_printable(name)}")


class Overridden:
    """Some data with values of the command line's in it.

    Parameters
    ----------
    document
        Where the data is written.
    data
        What it says.
    overrides
        What is said over it.

    Attributes
    ----------
    data, problems
        As a `Document`'s.
    """

    def __init__(
        self, document: Document, data: dict[str, Any], overrides: Sequence[Override]
    ) -> None:
        self._document = document
        self._overrides = overrides
        self.data = data
        self.problems = list(document.problems)
        for each in overrides:
            self.data = _put(self.data, each.path, each)

    def place(self, path: Path, *, of_key: bool = False) -> Place:
        """Return where a path leads to, in the file or on the command line."""
        steps = tuple(map(str, path))
        said = [each for each in self._overrides if _explains(each.path, steps)]
        if not said and not self._document.holds(path[:-1]):
            said = [each for each in self._overrides if each.path[: len(path) - 1] == steps[:-1]]
        if said:
            return Place(0, 0, said[-1].option)
        return self._document.place(path, of_key=of_key)


def _explains(override: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Whether a path lies in what an override says, or is a section only because of it."""
    return path[: len(override)] == override or override[: len(path)] == path


def _path(name: str) -> tuple[str, ...]:
    steps: list[str] = []
    rest = name
    while True:
        found = _STEP.match(rest)
        if found is None:
            raise _no_name(name)
        steps.append(found["plain"] if found["quote"] is None else found["quoted"])
        rest = rest[found.end() :]
        if not rest:
            return tuple(steps)
        if not rest.startswith("."):
            raise _no_name(name)
        rest = rest[1:]


def _value(name: str, text: str) -> Any:
    if not text.startswith(_STRUCTURED):
        return None if text in ("", "null", "~") else text
    try:
        document = Document(f"value: {text}")
    except YamlProblem as problem:
        raise UsageError(f"--set {name}: {problem.what}") from None
    if document.problems:
        raise UsageError(f"--set {name}: {document.problems[0].what}")
    if document.data.keys() != {"value"}:
        raise UsageError(f"--set {name}: expected one value, got more than one line")
    return document.data["value"]


def _no_name(name: str) -> UsageError:
    return UsageError(f"--set: {name!r} is no field's name; {_EXAMPLE}")


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _put(here: Any, path: tuple[str, ...], override: Override) -> Any:
    """Return what is here with a value put at a path; nothing is changed in place."""
    if not path:
        return override.value
    step, rest = path[0], path[1:]
    if here is None and step.isdecimal():
        here = []
    if isinstance(here, list):
        index = _index(step, here, override)
        items = [*here, None] if index == len(here) else list(here)
        items[index] = _put(items[index], rest, override)
        return items
    section = dict(here) if isinstance(here, dict) else {}
    section[step] = _put(section.get(step), rest, override)
    return section


def _index(step: str, items: list[Any], override: Override) -> int:
    known = f"0 to {len(items)}" if items else "0"
    if not re.fullmatch(r"[0-9]{1,9}", step, re.ASCII) or int(step) > len(items):
        raise UsageError(f"{override.option}: {step!r} is no place in a list; expected {known}")
    return int(step)
