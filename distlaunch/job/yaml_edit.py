"""Values set in the text of a job file, with its comments and order kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from distlaunch.job.overrides import Override, override
from distlaunch.job.yaml_document import Document, YamlProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

_ANCHORS = ("bucket", "region", "project", "name")  # keys before which a new one is written


def set_values(text: str, values: Mapping[tuple[str, ...], str]) -> str | None:
    """Return the text of a job file with words as values, by path.

    None is returned if it is not written as ``key: value`` on lines, e.g. in braces.
    """
    document = Document(text)
    overrides = [Override(path, value, "") for path, value in values.items()]
    expected = override(document, overrides).data
    try:
        for path, value in values.items():
            text = _set(text, path, value)
        is_set = Document(text).data == expected
    except (YamlProblem, yaml.YAMLError):
        return None
    return text if is_set else None


def _set(text: str, path: tuple[str, ...], value: str) -> str:
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
