"""What Google requires of a job beyond the types of its fields, where an error could mislead.

Machines, regions, limits and prices are checked in `distlaunch.checks`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from distlaunch.job.validation import describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distlaunch.job.yaml_document import Path

_CONTROL = re.compile(r"[\0-\x1f\x7f]")
_SPACE_OR_CONTROL = re.compile(r"[\0-\x20\x7f]")
_LONGEST_LABEL = 63


def broken_rules(body: Mapping[str, Any], spec: str) -> Iterator[tuple[Path, str]]:
    """Yield the path and the problem of each field that breaks a rule; `spec` is from `SPECS`."""
    display_name = body.get("displayName", "")
    if _CONTROL.search(display_name):
        yield ("displayName",), f"expected text in one line, got {describe_value(display_name)}"
    for key, value in body.get("labels", {}).items():
        message = "expected at most 63 lower-case letters, digits, _ and -"
        if not key or not _is_label(key) or not key[0].isalpha():
            yield ("labels", key), f"{message}, a letter first, got {describe_value(key)}"
        if not _is_label(value):
            yield ("labels", key), f"{message}, got {describe_value(value)}"
    pools = body.get(spec, {}).get("workerPoolSpecs", [])
    path = (spec, "workerPoolSpecs")
    if not pools or not pools[0]:
        yield path, "no chief; expected a first pool with one machine"
    elif pools[0].get("replicaCount", 1) != 1:
        count = pools[0]["replicaCount"]
        yield (*path, 0, "replicaCount"), f"expected 1, as the first pool is the chief, got {count}"
    for index, pool in enumerate(pools):
        yield from _program_rules((*path, index), pool)


def _is_label(text: str) -> bool:
    """Whether this is a label at Google, which may be in any script."""
    plain = text.replace("_", "").replace("-", "")
    return len(text) <= _LONGEST_LABEL and text == text.lower() and (not plain or plain.isalnum())


def _program_rules(path: Path, pool: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    for field, image_field in (
        ("containerSpec", "imageUri"),
        ("pythonPackageSpec", "executorImageUri"),
    ):
        program = pool.get(field, {})
        image = program.get(image_field, "")
        if _SPACE_OR_CONTROL.search(image):
            message = f"expected an image such as HOST/PATH:TAG, got {describe_value(image)}"
            yield (*path, field, image_field), message
        for index, variable in enumerate(program.get("env", [])):
            name = variable.get("name", "")
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII):
                message = f"expected a variable name such as LOG_LEVEL, got {describe_value(name)}"
                yield (*path, field, "env", index, "name"), message
