"""The documented schemas of commands' JSON output, in ``docs/schemas``."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[1] / "docs" / "schemas"


def load_checked(name: str, text: str) -> Any:
    """Return the JSON value of a text; fail if it does not fit ``docs/schemas/NAME.json``."""
    value = json.loads(text)
    _validator(name).validate(value)
    return value


@cache
def _validator(name: str) -> Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)
