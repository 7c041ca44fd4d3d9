"""Values set in the text of a job file, with its comments and order kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from distlaunch.errors import DistlaunchError
from distlaunch.files import atomic_write
from distlaunch.job.overrides import Override, override
from distlaunch.job.yaml_document import Document, YamlProblem, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path as FilePath

    Path = tuple[str, ...]

_ANCHORS = ("bucket", "region", "project", "name")  # keys before which a new one is written


def write_values(file: FilePath, values: Mapping[Path, str]) -> None:
    """Write words as values into a job file, by path.

    DistlaunchError is raised if it is not written as ``key: value`` on lines, e.g. in braces.
    """
    text = read_text(file)
    overrides = [Override(path, value, "") for path, value in values.items()]
    expected = override(Document(text), overrides).data
    try:
        for path, value in values.items():
            text = _set(text, path, value)
        is_set = Document(text).data == expected
    except (YamlProblem, yaml.YAMLError):
        is_set = False
    if not is_set:
        what = "not written as lines of 'key: value'"
        raise DistlaunchError(what, where=str(file), remedy="set these keys by hand")
    atomic_write(file, text)


def _set(text: str, path: Path, value: str) -> str:
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    for depth, key in enumerate(path):
        pairs = {name.value: (name, item) for name, item in node.value}
        if key in pairs:
            node = pairs[key][1]
        elif pairs:
            anchor = next((name for name in _ANCHORS if name in pairs), next(iter(pairs)))
            mark = pairs[anchor][0].start_mark
            start = text.rfind("\n", 0, mark.index) + 1
            for section in reversed(path[depth + 1 :]):
                value = f"{{{section}: {value}}}"
            return f"{text[:start]}{' ' * mark.column}{key}: {value}\n{text[start:]}"
    return text[: node.start_mark.index] + value + text[node.end_mark.index :]
