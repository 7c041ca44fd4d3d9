"""Google's own description of its APIs, to hold answers to."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import googleapiclient.discovery_cache
import jsonschema

FORMATS = {
    "int64": r"^-?\d+$",
    "uint64": r"^\d+$",
    "google-datetime": r"^\d{4}-\d\d-\d\dT[\d:.]+Z$",
}


def misfits(api: str, method: str, path: str, answer: Any) -> list[str]:
    """Return what in the answer to a request is not as an API describes it.

    Parameters
    ----------
    api
        With its version, as ``iam.v1``.
    path
        Of the request, with its escapes and without its query.
    """
    response = _strict(_method(api, method, path)["response"])
    validator = jsonschema.Draft202012Validator({**response, "$defs": _schemas(api)})
    return [f"{each.json_path}: {each.message}" for each in validator.iter_errors(answer)]


@cache
def _document(api: str) -> dict[str, Any]:
    folder = Path(googleapiclient.discovery_cache.__file__).parent
    return json.loads((folder / f"documents/{api}.json").read_text(encoding="utf-8"))


def _method(api: str, method: str, path: str) -> dict[str, Any]:
    document = _document(api)
    found = [
        each
        for each in _methods(document)
        if each["httpMethod"] == method and _pattern(document, each).fullmatch(path)
    ]
    assert len(found) == 1, f"{api} has {len(found)} methods at {method} {path}"
    return found[0]


def _methods(node: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [each for part in node.get("resources", {}).values() for each in _methods(part)]
    return [*node.get("methods", {}).values(), *inner]


def _pattern(document: dict[str, Any], method: dict[str, Any]) -> re.Pattern[str]:
    address = f"/{document['servicePath']}{method.get('flatPath', method['path'])}"
    return re.compile(re.sub(r"\\\{\w+\\\}", "[^/:]+", re.escape(address)))


@cache
def _schemas(api: str) -> dict[str, Any]:
    return {name: _strict(schema) for name, schema in _document(api)["schemas"].items()}


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of Google's as one of JSON Schema that takes no field beyond its own."""
    if "$ref" in schema:
        return {"$ref": f"#/$defs/{schema['$ref']}"}
    if "items" in schema:
        return {"type": "array", "items": _strict(schema["items"])}
    if "additionalProperties" in schema:
        return {
            "type": "object",
            "additionalProperties": _strict(schema["additionalProperties"]),
        }
    if schema["type"] == "object":
        fields = {name: _strict(each) for name, each in schema.get("properties", {}).items()}
        return {"type": "object", "properties": fields, "additionalProperties": False}
    made = {key: schema[key] for key in ("type", "enum") if key in schema and schema[key] != "any"}
    if schema.get("format") in FORMATS:
        made["pattern"] = FORMATS[schema["format"]]
    return made
