"""YAML (and JSON, which is YAML but for its tabs) read safely, with the place of everything in it.

Scalars are kept as they were written: ``no``, ``012`` and ``1:30`` are what they look like, and not
False, 10 and 90. What they are taken for is decided where it is known what is wanted.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

Path = tuple[str | int, ...]

_VARIABLE = re.compile(r"(?P<escape>\$?)\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_UNREADABLE = re.compile(
    r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_EXPONENT = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?[eE][+-]?[0-9]+", re.ASCII)
_MERGE = "tag:yaml.org,2002:merge"
_TAGS = {
    yaml.MappingNode: {"tag:yaml.org,2002:map"},
    yaml.SequenceNode: {"tag:yaml.org,2002:seq"},
    yaml.ScalarNode: {
        f"tag:yaml.org,2002:{name}"
        for name in ("str", "null", "bool", "int", "float", "timestamp", "value")
    },
}


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file; line and column count from 1.

    Parameters
    ----------
    option
        What says it on the command line, where no file does, as ``--set cluster.workers.count``.
    """

    line: int
    column: int
    option: str = ""


class YamlProblem(Exception):
    """Text that is no YAML, or YAML that a job file cannot be."""

    def __init__(self, place: Place, what: str) -> None:
        super().__init__(what)
        self.place = place
        self.what = what


class Marked(Protocol):
    """Plain data that knows where each part of it is written."""

    data: dict[str, Any]
    problems: list[YamlProblem]

    def place(self, path: Path, *, of_key: bool = False) -> Place: ...


class Document:
    """A YAML text, as plain data and as places.

    Parameters
    ----------
    text
        The YAML or JSON.
    variables
        What ``${NAME}`` stands for in a value; None if it stands for itself. ``$${NAME}`` is what
        ``${NAME}`` is written as where it is meant.

    Attributes
    ----------
    data
        What the text says, as dicts, lists, text and None.
    problems
        Keys that are there twice and what else was passed over in `data`.

    Raises
    ------
    YamlProblem
        If the text is not one YAML mapping.
    """

    def __init__(self, text: str, variables: Mapping[str, str] | None = None) -> None:
        self.problems: list[YamlProblem] = []
        self._variables = variables
        self._made: dict[int, Any] = {}
        self._open: set[int] = set()
        self._by_key: dict[int, dict[str | int, tuple[yaml.Node, yaml.Node]]] = {}
        try:
            self._root = _compose(_without_tabs(text))
            self.data: dict[str, Any] = self._plain(self._root)
        except RecursionError:
            raise YamlProblem(Place(1, 1), "nested too deeply") from None

    def typed(self, key: str) -> Any:
        """Return what stands under a key of the first level with numbers and booleans as such."""
        found = self._step(self._root, key)
        if found is None:
            return None
        _, node = found
        try:
            return _Typed("").construct_document(node)
        except (yaml.YAMLError, ValueError):
            place = _place(node.start_mark)
            raise YamlProblem(place, f"{key}: holds a value that cannot be read") from None

    def place(self, path: Path, *, of_key: bool = False) -> Place:
        """Return where a path leads: to the value, or to the key before it.

        A path that goes on past what is there ends at the last thing on its way.
        """
        return self._follow(path, of_key=of_key)[1]

    def holds(self, path: Path) -> bool:
        """Whether something stands at a path."""
        return self._follow(path, of_key=False)[0]

    def _follow(self, path: Path, *, of_key: bool) -> tuple[bool, Place]:
        here: yaml.Node = self._root
        mark = here.start_mark
        for step in path:
            found = self._step(here, step)
            if found is None:
                return False, _place(mark)
            key, here = found
            mark = key.start_mark if of_key else here.start_mark
        return True, _place(mark)

    def _step(self, node: yaml.Node, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
        """Return the key (or the item itself) and the value that a step leads to."""
        if isinstance(node, yaml.MappingNode):
            if id(node) not in self._by_key:  # kept: each problem of a long section is looked up
                in_reverse = reversed(_pairs(node))
                self._by_key[id(node)] = {key.value: (key, value) for key, value in in_reverse}
            return self._by_key[id(node)].get(step)
        items = node.value if isinstance(node, yaml.SequenceNode) else []
        if isinstance(step, int) and step < len(items):
            return items[step], items[step]
        return None

    def _plain(self, node: yaml.Node) -> Any:
        """Turn a node into dicts, lists and text, each node once however often it is named."""
        if id(node) in self._open:
            self._note(node, "an alias that contains itself")
            return None
        if id(node) not in self._made:
            self._open.add(id(node))
            self._made[id(node)] = self._make(node)
            self._open.discard(id(node))
        return self._made[id(node)]

    def _make(self, node: yaml.Node) -> Any:
        if node.tag not in _TAGS[type(node)]:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            self._note(node, f"the tag {tag} has no place in a job file")
        if isinstance(node, yaml.MappingNode):
            self._check_keys(node)
            made: dict[str, Any] = {}
            for key, value in _pairs(node):
                if key.value not in made:
                    made[key.value] = self._plain(value)
            return made
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(item) for item in node.value]
        return self._text(node) if node.tag != "tag:yaml.org,2002:null" else None

    def _text(self, node: yaml.Node) -> str:
        """Return what a scalar says, with the variables in it filled in."""
        text: str = self._whole(node)
        variables = self._variables
        if variables is None:
            return text

        def value(found: re.Match[str]) -> str:
            if found["escape"]:
                return found[0][1:]
            if found["name"] not in variables:
                self._note(node, _not_set(found["name"]))
            return variables.get(found["name"], "")

        return _VARIABLE.sub(value, text)

    def _whole(self, node: yaml.Node) -> str:
        r"""Return a scalar with the halves joined in which JSON escapes a character, as \ud83d."""
        if not any("\ud800" <= letter <= "\udfff" for letter in node.value):
            return str(node.value)
        pairs = node.value.encode("utf-16", "surrogatepass")
        try:
            return str(pairs.decode("utf-16"))
        except UnicodeDecodeError:
            self._note(node, "half of a character, as JSON escapes it; the other half is missing")
            return str(pairs.decode("utf-16", "replace"))

    def _check_keys(self, node: yaml.MappingNode) -> None:
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._note(key, "a key has to be plain text")
            elif key.tag == _MERGE and _merged_mappings(value) is None:
                self._note(value, "<<: expected an alias of a section, as *name")
            elif key.value in lines:
                what = f"{key.value}: is here twice; the first is in line {lines[key.value]}"
                self._note(key, what)
            else:
                lines[key.value] = key.start_mark.line + 1

    def _note(self, node: yaml.Node, what: str) -> None:
        self.problems.append(YamlProblem(_place(node.start_mark), what))


class _Typed(yaml.SafeLoader):
    """Numbers and booleans as YAML has them, dates as they were written."""


def _as_written(loader: _Typed, node: yaml.ScalarNode) -> Any:
    return loader.construct_scalar(node)


def _as_json_has_it(loader: _Typed, node: yaml.ScalarNode) -> Any:
    """Return a number that YAML 1.1 takes for text, as it has no point: ``1e-4``."""
    text: str = loader.construct_scalar(node)
    return float(text) if node.style is None and _EXPONENT.fullmatch(text) else text


_Typed.add_constructor("tag:yaml.org,2002:timestamp", _as_written)
_Typed.add_constructor("tag:yaml.org,2002:str", _as_json_has_it)


def _not_set(name: str) -> str:
    written = f"${{{name}}}"
    return f"{written}: {name} is not set; export {name}=…, or write ${written} for the text itself"


def _without_tabs(text: str) -> str:
    """Write JSON without the characters that it may hold and YAML may not; others stay in place."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    plain = text.replace("\t", " ")  # between words: in text JSON writes them as \\t
    return _UNREADABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", plain)


def _compose(text: str) -> yaml.MappingNode:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        place = _place(mark) if mark else Place(1, 1)
        hint = _hint(text, place)
        raise YamlProblem(place, f"not YAML: {_explain(problem)}{hint}") from None
    except yaml.reader.ReaderError as problem:
        before = text[: problem.position]
        place = Place(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        raise YamlProblem(place, f"not YAML: the character U+{problem.character:04X}") from None
    if not isinstance(root, yaml.MappingNode):
        place = _place(root.start_mark) if root else Place(1, 1)
        raise YamlProblem(place, "expected keys with values, as 'name: digits'")
    return root


def _explain(problem: yaml.MarkedYAMLError) -> str:
    """Say in one line what PyYAML says in several."""
    parts = [problem.context, problem.problem]
    text = ", ".join(part for part in parts if part)
    if "cannot start any token" in text and "'\\t'" in text:
        return "a tab where spaces are needed"
    return text


def _hint(text: str, place: Place) -> str:
    """Say why a variable is no YAML, where there is one in the line."""
    lines = text.split("\n")[place.line - 1 : place.line]
    has_variable = any(_VARIABLE.search(line) for line in lines)
    return "; between braces and brackets ${NAME} stands in quotes" if has_variable else ""


def _pairs(node: yaml.MappingNode) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    """Return keys and values, those of a merged mapping (``<<: *other``) behind its own."""
    plain = [(key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    own = [(key, value) for key, value in plain if key.tag != _MERGE]
    merged = [_merged_mappings(value) or [] for key, value in plain if key.tag == _MERGE]
    return own + [pair for mappings in merged for each in mappings for pair in _pairs(each)]


def _merged_mappings(node: yaml.Node) -> list[yaml.MappingNode] | None:
    """Return the mappings behind ``<<:``, one or a list, or None where something else stands."""
    sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
    mappings = [source for source in sources if isinstance(source, yaml.MappingNode)]
    return mappings if len(mappings) == len(sources) else None


def _place(mark: yaml.Mark) -> Place:
    return Place(mark.line + 1, mark.column + 1)
