"""The types of the fields that are used of Google's answers; every field may be missing."""

from __future__ import annotations

import json
import re
from typing import Any

ANY = "*"  # every field of an object

_SHOWN = 60  # characters of a text
_HALF = re.compile("[\ud800-\udfff]")  # of a pair of surrogates, which UTF-8 cannot encode
_MOST = 1_000_000  # of anything that is counted: machines, their accelerators, trials
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


def mismatch(value: object, shape: Any, path: str = "") -> str:
    """Return where a value is not of a shape, such as ``trials[0].id: expected text, got 1``.

    Parameters
    ----------
    shape
        ``str``; ``int`` for a count, which JSON may have as text; a list with the shape of its
        items, or an empty one for any items; or an object with the shapes of its fields. Other
        fields are not looked at.
    path
        Where the value is.
    """
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _expected("a list", value, path)
        parts = [
            (each, kind, f"{path}[{number}]") for kind in shape for number, each in enumerate(value)
        ]
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            return _expected("an object", value, path)
        names = value.keys() if ANY in shape else value.keys() & shape
        parts = [
            (value[name], shape.get(name, shape.get(ANY)), f"{path}.{name}".removeprefix("."))
            for name in sorted(names)
        ]
    elif shape is int:
        return "" if _is_count(value) else _expected("a count", value, path)
    else:
        is_text = isinstance(value, str) and _HALF.search(value) is None
        return "" if is_text else _expected("text", value, path)
    return next(filter(None, (mismatch(*part) for part in parts)), "")


def _is_count(value: object) -> bool:
    if isinstance(value, str):
        return len(value) < 20 and value.isascii() and value.isdecimal() and int(value) <= _MOST
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST


def _expected(kind: str, value: object, path: str) -> str:
    if isinstance(value, (dict, list)):
        shown = "an object" if isinstance(value, dict) else "a list"
    else:
        shown = json.dumps(value[:_SHOWN] if isinstance(value, str) else value)
    return f"{path}: expected {kind}, got {shown}"
