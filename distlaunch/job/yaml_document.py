"""YAML (and JSON), read safely and with the location of every value.

Scalars stay the text that was written: ``no``, ``012`` and ``1:30`` are text, and not False, 10 and
90. The schema converts them where it knows which type is expected.
"""

from __future__ import annotations

import json
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from distlaunch.errors import Diagnostic, DistlaunchError, JobFileError, os_reason
from distlaunch.files import display_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path as FilePath

Path = tuple[str | int, ...]

_LARGEST_FILE = 1_000_000  # bytes; PyYAML needs seconds for this size
_MOST_PROBLEMS = 100  # shown for one file
_VARIABLE = re.compile(r"(?P<escape>\$?)\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_BARE_VARIABLE = re.compile(r"(?<!\$)\$(?P<name>[A-Z_][A-Z0-9_]*)\b", re.ASCII)
_UNREADABLE = re.compile(
    r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)  # characters that JSON allows and PyYAML does not
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
class Location:
    """A location in a file, counted from 1, or the option that set a value: ``--set name``."""

    line: int
    column: int
    option: str = ""


class YamlProblem(Exception):
    """Text that is not YAML, or YAML that a job file cannot contain; `key` is that of the value."""

    def __init__(self, location: Location, message: str, key: str = "") -> None:
        super().__init__(message)
        self.location = location
        self.message = message
        self.key = key

    @property
    def text(self) -> str:
        """The message after the key."""
        return f"{self.key}: {self.message}" if self.key else self.message


def read_text(path: FilePath, *, remedy: str = "") -> str:
    """Read a file of UTF-8 text; `remedy` is that of the error if there is none."""
    where = display_path(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise DistlaunchError("not a file", where=where, remedy="expected text in YAML")
        if status.st_size > _LARGEST_FILE:
            what = f"too large: {status.st_size:,} bytes, expected at most {_LARGEST_FILE:,}"
            raise DistlaunchError(what, where=where)
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        if path.is_symlink():
            raise DistlaunchError(
                "broken symlink", where=where, remedy="fix or remove it"
            ) from None
        raise DistlaunchError("no such file", where=where, remedy=remedy) from None
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        location = Location(before.count(b"\n") + 1, column)
        raise job_file_error(path, [YamlProblem(location, "not UTF-8 text")]) from None
    except OSError as error:
        raise DistlaunchError(os_reason(error), where=where) from None


def read_document(
    path: FilePath, variables: Mapping[str, str] | None = None, *, remedy: str = ""
) -> Document:
    """Read a file as a `Document`; its problems are a DistlaunchError."""
    try:
        return Document(read_text(path, remedy=remedy), variables)
    except YamlProblem as problem:
        raise job_file_error(path, [problem]) from None


def job_file_error(path: FilePath, problems: Iterable[YamlProblem]) -> JobFileError:
    """Return the error with a file's first problems, ordered by location."""
    in_order = sorted(problems, key=lambda each: (each.location.line, each.location.column))
    shown = [_diagnostic(path, problem) for problem in in_order[:_MOST_PROBLEMS]]
    if more := len(in_order) - len(shown):
        shown.append(Diagnostic(f"and {more:,} more problems", where=display_path(path)))
    return JobFileError(problems=shown)


def _diagnostic(path: FilePath, problem: YamlProblem) -> Diagnostic:
    location = problem.location
    where = location.option or f"{display_path(path)}:{location.line}:{location.column}"
    is_named = location.option == f"--set {problem.key}"
    return Diagnostic(problem.message if is_named else problem.text, where=where)


def deep_merge(
    base: Mapping[str, Any], override: Mapping[str, Any], *, drop_none: bool = False
) -> dict[str, Any]:
    """Return `base` with `override` merged into it; with `drop_none`, None removes a key."""
    merged = dict(base)
    for key, value in override.items():
        below = merged.get(key)
        if isinstance(value, dict) and (isinstance(below, dict) or drop_none):
            merged[key] = deep_merge(
                below if isinstance(below, dict) else {}, value, drop_none=drop_none
            )
        elif value is None and drop_none:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


class Document:
    """A YAML or JSON text as plain data, with locations.

    `data` is dicts, lists, text and None. `problems` are duplicate keys and whatever else was left
    out. `variables` are the values for ``${NAME}``, None to leave it (``$${NAME}`` is an escaped
    one); `substituted` and `bare_variables` are the first location of each ``${NAME}`` that was
    replaced, and of each ``$NAME``, which never is. `options` are paths whose values were set by an
    option of the command line, and the option.

    Raises
    ------
    YamlProblem
        If the text is not one YAML mapping.
    """

    def __init__(self, text: str, variables: Mapping[str, str] | None = None) -> None:
        self.problems: list[YamlProblem] = []
        self.substituted: dict[str, Location] = {}
        self.bare_variables: dict[str, Location] = {}
        self.options: list[tuple[tuple[str, ...], str]] = []
        self._variables = variables
        self._values: dict[int, Any] = {}
        self._open: set[int] = set()
        self._by_key: dict[int, dict[str | int, tuple[yaml.Node, yaml.Node]]] = {}
        try:
            self._root = _compose(_json_as_yaml(text))
            self.data: dict[str, Any] = self._value(self._root)
        except RecursionError:
            raise YamlProblem(Location(1, 1), "nested too deeply") from None

    def location(self, path: Path, *, of_key: bool = False) -> Location:
        """Return the location of a value, or of its key; of the last existing step of the path."""
        steps = tuple(map(str, path))
        options = [option for target, option in self.options if _is_within(target, steps)]
        if not options and not self.holds(path[:-1]):
            options = [
                option for target, option in self.options if target[: len(steps) - 1] == steps[:-1]
            ]
        return Location(0, 0, options[-1]) if options else self._follow(path, of_key=of_key)[1]

    def holds(self, path: Path) -> bool:
        """Whether there is a value at a path."""
        return self._follow(path, of_key=False)[0]

    def _follow(self, path: Path, *, of_key: bool) -> tuple[bool, Location]:
        node: yaml.Node = self._root
        mark = node.start_mark
        for step in path:
            pair = self._step(node, step)
            if pair is None:
                return False, _location(mark)
            key, node = pair
            mark = key.start_mark if of_key else node.start_mark
        return True, _location(mark)

    def _step(self, node: yaml.Node, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
        """Return the key (or the item itself) and the value of one step of a path."""
        if isinstance(node, yaml.MappingNode):
            if id(node) not in self._by_key:  # cached: each problem of a long section needs it
                in_reverse = reversed(_pairs(node))
                self._by_key[id(node)] = {key.value: (key, value) for key, value in in_reverse}
            return self._by_key[id(node)].get(step)
        items = node.value if isinstance(node, yaml.SequenceNode) else []
        if isinstance(step, int) and step < len(items):
            return items[step], items[step]
        return None

    def _value(self, node: yaml.Node) -> Any:
        """Convert a node to dicts, lists and text, once however many aliases it has."""
        if id(node) in self._open:
            self._add_problem(node, "an alias that contains itself")
            return None
        if id(node) not in self._values:
            self._open.add(id(node))
            self._values[id(node)] = self._convert(node)
            self._open.discard(id(node))
        return self._values[id(node)]

    def _convert(self, node: yaml.Node) -> Any:
        if node.tag not in _TAGS[type(node)]:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            self._add_problem(node, f"unsupported YAML tag {tag}")
        if isinstance(node, yaml.MappingNode):
            self._check_keys(node)
            mapping: dict[str, Any] = {}
            for key, value in _pairs(node):
                if key.value not in mapping:
                    mapping[key.value] = self._value(value)
            return mapping
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item) for item in node.value]
        return self._text(node) if node.tag != "tag:yaml.org,2002:null" else None

    def _text(self, node: yaml.Node) -> str:
        """Return a scalar with its variables replaced."""
        # JSON escapes characters such as emoji as two halves, which this joins.
        text = str(node.value.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        variables = self._variables
        if variables is None:
            return text
        location = _location(node.start_mark)
        for match in _BARE_VARIABLE.finditer(text):
            self.bare_variables.setdefault(match["name"], location)

        def replace(match: re.Match[str]) -> str:
            name = match["name"]
            if match["escape"]:
                return match[0][1:]
            if name not in variables:
                hint = f"export {name}=…, or write $${{{name}}} to keep the text"
                self._add_problem(node, f"${{{name}}}: {name} is not set; {hint}")
                return ""
            self.substituted.setdefault(name, location)
            return variables[name]

        return _VARIABLE.sub(replace, text)

    def _check_keys(self, node: yaml.MappingNode) -> None:
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._add_problem(key, "a key must be plain text")
            elif key.tag == _MERGE and _merged_mappings(value) is None:
                self._add_problem(value, "<<: expected an alias of a section, such as *name")
            elif key.value in lines:
                message = f"duplicate key (first defined on line {lines[key.value]})"
                self._add_problem(key, message, key.value)
            else:
                lines[key.value] = key.start_mark.line + 1

    def _add_problem(self, node: yaml.Node, message: str, key: str = "") -> None:
        self.problems.append(YamlProblem(_location(node.start_mark), message, key))


def _is_within(override: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Whether a path is within an override, or is a section only because of it."""
    return path[: len(override)] == override or override[: len(path)] == path


def _json_as_yaml(text: str) -> str:
    """Replace the characters of JSON that YAML does not allow, without moving others."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    without_tabs = text.replace("\t", " ")  # JSON has none within strings
    return _UNREADABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", without_tabs)


def _compose(text: str) -> yaml.MappingNode:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if error.context == "while scanning a simple key":  # its ':' is missing, lines before
            mark = error.context_mark
        location = _location(mark) if mark else Location(1, 1)
        message = f"not YAML: {_error_text(error)}{_variable_hint(text, location)}"
        raise YamlProblem(location, message) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        location = Location(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        raise YamlProblem(location, f"not YAML: the character U+{error.character:04X}") from None
    if not isinstance(root, yaml.MappingNode):
        location = _location(root.start_mark) if root else Location(1, 1)
        expected = "expected keys with values, such as 'name: digits'"
        if isinstance(root, yaml.SequenceNode):
            expected += ", got a list; for --config, write workerPoolSpecs: before the list"
            expected += ' (in JSON: {"workerPoolSpecs": […]})' if root.flow_style else ""
        raise YamlProblem(location, expected)
    return root


def _error_text(error: yaml.MarkedYAMLError) -> str:
    """Return PyYAML's message in one line."""
    text = ", ".join(part for part in (error.context, error.problem) if part)
    if "cannot start any token" in text and "'\\t'" in text:
        return "a tab where spaces are needed"
    if text.endswith("could not find expected ':'"):
        return "a key without ':' and value; write it as 'name: digits'"
    if match := re.search(r"but found '([]},])'$", text):
        return f"{match[1]!r} without what it ends; remove it, or write what is missing before it"
    return text


def _variable_hint(text: str, location: Location) -> str:
    lines = text.split("\n")[location.line - 1 : location.line]
    has_variable = any(_VARIABLE.search(line) for line in lines)
    return "; put ${NAME} in quotes between braces and brackets" if has_variable else ""


def _pairs(node: yaml.MappingNode) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    """Return keys and values, those of a merged mapping (``<<: *other``) after the mapping's."""
    plain = [(key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    direct = [(key, value) for key, value in plain if key.tag != _MERGE]
    merged = [_merged_mappings(value) or [] for key, value in plain if key.tag == _MERGE]
    return direct + [pair for mappings in merged for each in mappings for pair in _pairs(each)]


def _merged_mappings(node: yaml.Node) -> list[yaml.MappingNode] | None:
    """Return the mappings of ``<<:``, one or a list; None if it is anything else."""
    sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
    mappings = [source for source in sources if isinstance(source, yaml.MappingNode)]
    return mappings if len(mappings) == len(sources) else None


def _location(mark: yaml.Mark) -> Location:
    return Location(mark.line + 1, mark.column + 1)
