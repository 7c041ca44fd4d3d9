"""What Google asks of a job beyond the types of its fields, where a wrong file would mislead us.

Machines, regions, limits and prices are another matter, and are looked at where jobs are checked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from distlaunch.job.wording import describe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distlaunch.job.yaml_document import Path

_CONTROL = re.compile(r"[\0-\x1f\x7f]")
_SPACE_OR_CONTROL = re.compile(r"[\0-\x20\x7f]")
_LONGEST_LABEL = 63


def broken_rules(body: Mapping[str, Any], spec: str) -> Iterator[tuple[Path, str]]:
    """Yield the path and the fault of everything that no job can be.

    Parameters
    ----------
    body
        A CustomJob or a HyperparameterTuningJob in Google's JSON names.
    spec
        Where it says what runs, ``jobSpec`` or ``trialJobSpec``.
    """
    if _CONTROL.search(body.get("displayName", "")):
        yield ("displayName",), f"expected text in one line, got {describe(body['displayName'])}"
    for key, value in body.get("labels", {}).items():
        yield from _label(key, value)
    pools = body.get(spec, {}).get("workerPoolSpecs", [])
    yield from _chief((spec, "workerPoolSpecs"), pools)
    for index, pool in enumerate(pools):
        yield from _program((spec, "workerPoolSpecs", index), pool)


def _chief(path: Path, pools: list[dict[str, Any]]) -> Iterator[tuple[Path, str]]:
    if not pools or not pools[0]:
        yield path, "no chief; expected a first pool with one machine"
    elif pools[0].get("replicaCount", 1) != 1:
        count = pools[0]["replicaCount"]
        yield (*path, 0, "replicaCount"), f"expected 1, as the first pool is the chief, got {count}"


def _label(key: str, value: str) -> Iterator[tuple[Path, str]]:
    if not key or not _is_label(key) or not key[0].isalpha():
        what = "expected at most 63 lower-case letters, digits, _ and -, a letter first"
        yield ("labels", key), f"{what}, got {describe(key)}"
    if not _is_label(value):
        what = "expected at most 63 lower-case letters, digits, _ and -"
        yield ("labels", key), f"{what}, got {describe(value)}"


def _is_label(text: str) -> bool:
    """Whether this is one of Google's labels, which may be of any script."""
    plain = text.replace("_", "").replace("-", "")
    return len(text) <= _LONGEST_LABEL and text == text.lower() and (not plain or plain.isalnum())


def _program(path: Path, pool: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    for task, field in (("containerSpec", "imageUri"), ("pythonPackageSpec", "executorImageUri")):
        there = pool.get(task, {})
        image = there.get(field, "")
        if _SPACE_OR_CONTROL.search(image):
            what = f"expected an image, as HOST/PATH:TAG, got {describe(image)}"
            yield (*path, task, field), what
        for index, each in enumerate(there.get("env", [])):
            name = each.get("name", "")
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII):
                what = f"expected a variable's name, as LOG_LEVEL, got {describe(name)}"
                yield (*path, task, "env", index, "name"), what
