"""The types of the fields that are read from Google's responses; every field may be missing."""

from __future__ import annotations

import json
import re
from typing import Any

ANY = "*"  # every field of an object

_QUOTED = 60  # characters of a text
_SURROGATE = re.compile("[\ud800-\udfff]")  # cannot be encoded as UTF-8
_MAX_COUNT = 1_000_000  # of machines, their accelerators, trials
_SPEC = {
    "baseOutputDirectory": {"outputUriPrefix": str},
    "workerPoolSpecs": [
        {
            "containerSpec": {"imageUri": str, "command": [str], "args": [str]},
            "machineSpec": {"machineType": str, "acceleratorType": str, "acceleratorCount": int},
            "pythonPackageSpec": {"args": [str]},
            "replicaCount": int,
        }
    ],
}
JOB = {
    "name": str,
    "displayName": str,
    "state": str,
    "createTime": str,
    "startTime": str,
    "endTime": str,
    "updateTime": str,
    "labels": {ANY: str},
    "error": {"message": str},
    "jobSpec": _SPEC,
    "trialJobSpec": _SPEC,
    "maxTrialCount": int,
    "trials": [{"id": str, "state": str, "customJob": str}],
}
LOG_PAGE = {"entries": [{}], "nextPageToken": str}


def find_mismatch(value: object, schema: Any, path: str = "") -> str:
    """Return where a value violates a schema, such as ``trials[0].id: expected text, got 1``.

    A schema is ``str``; ``int`` for a count, which JSON may have as text; a list with the schema of
    its items, if that matters; or an object with the schemas of its fields; others are ignored.
    """
    if isinstance(schema, list):
        if not isinstance(value, list):
            return _expected("a list", value, path)
        parts = ((item, schema[0], f"{path}[{n}]") for n, item in enumerate(value) if schema)
    elif isinstance(schema, dict):
        if not isinstance(value, dict):
            return _expected("an object", value, path)
        names = sorted(value.keys() if ANY in schema else value.keys() & schema)
        prefix = f"{path}." if path else ""
        parts = (
            (value[name], schema.get(name, schema.get(ANY)), f"{prefix}{name}") for name in names
        )
    elif schema is int:
        return "" if _is_count(value) else _expected("a count", value, path)
    else:
        is_text = isinstance(value, str) and _SURROGATE.search(value) is None
        return "" if is_text else _expected("text", value, path)
    return next(filter(None, (find_mismatch(*part) for part in parts)), "")


def _is_count(value: object) -> bool:
    """Whether a value is a number or its digits; long digits would take Python long."""
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        return len(value) < 20 and int(value) <= _MAX_COUNT
    return type(value) is int and 0 <= value <= _MAX_COUNT


def _expected(kind: str, value: object, path: str) -> str:
    if isinstance(value, (dict, list)):
        actual = "an object" if isinstance(value, dict) else "a list"
    else:
        actual = json.dumps(value[:_QUOTED] if isinstance(value, str) else value)
    return f"{path}: expected {kind}, got {actual}"
