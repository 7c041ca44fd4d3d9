"""Values set in the text of a job file, with its comments and order kept."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Any

import yaml

from distlaunch.errors import DistlaunchError, os_reason
from distlaunch.files import atomic_write, refuse_symlinks
from distlaunch.job.overrides import Override, override
from distlaunch.job.yaml_document import Document, YamlProblem, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path as FilePath

    Path = tuple[str, ...]

_ANCHORS = ("bucket", "region", "project", "name")  # keys before which a new one is written


def write_values(file: FilePath, values: Mapping[Path, str]) -> None:
    """Write words as values into a job file, by path.

    DistlaunchError is raised if the text around them, e.g. an alias, does not allow that.
    """
    text = read_text(file)
    overrides = [Override(path, value, "") for path, value in values.items()]
    expected = override(Document(text), overrides).data
    by_hand = "set these keys by hand"
    try:
        for path, value in values.items():
            text = _set(text, path, value)
        is_set = Document(text).data == expected
    except (YamlProblem, yaml.YAMLError):
        is_set = False
    if not is_set:
        what = "not written as lines of 'key: value'"
        raise DistlaunchError(what, where=str(file), remedy=by_hand)
    try:
        refuse_symlinks(file, below=file.parent)
        mode = file.stat().st_mode
        if not mode & stat.S_IWUSR:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        atomic_write(file, text)
        file.chmod(mode)
    except OSError as error:
        what = f"cannot be written ({os_reason(error)})"
        raise DistlaunchError(what, where=str(file), remedy=by_hand) from error


def _set(text: str, path: Path, value: str) -> str:
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    for depth, key in enumerate(path):
        if not isinstance(node, yaml.MappingNode):  # a key without a value
            value = _nested(path[depth:], value)
            break
        pairs = {name.value: (name, item) for name, item in node.value}
        if key not in pairs:
            return _insert(text, node, f"{key}: {_nested(path[depth + 1 :], value)}")
        node = pairs[key][1]
    start, end = node.start_mark.index, node.end_mark.index
    return f"{text[:start]}{' ' if start == end else ''}{value}{text[end:]}"


def _insert(text: str, node: yaml.MappingNode, entry: str) -> str:
    """Return the text with a new entry of a mapping."""
    if node.flow_style:
        start = node.start_mark.index + 1
        return f"{text[:start]}{entry}{', ' if node.value else ''}{text[start:]}"
    marks = {name.value: name.start_mark for name, _ in node.value}
    mark = next((marks[name] for name in _ANCHORS if name in marks), next(iter(marks.values())))
    start = text.rfind("\n", 0, mark.index) + 1
    end = "\r\n" if "\r\n" in text else "\n"
    return f"{text[:start]}{' ' * mark.column}{entry}{end}{text[start:]}"


def _nested(sections: Path, value: str) -> str:
    for section in reversed(sections):
        value = f"{{{section}: {value}}}"
    return value
