"""The JSON schema of distlaunch.yaml, for editors: its keys, and what is expected in each.

It is made from the sections that read the file, so it knows the same keys. Google's fields under
``vertex`` are not in it; they are checked against Google's own messages when the file is read.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from distlaunch.job.schema import JobSection


def schema() -> dict[str, Any]:
    """Return the schema."""
    made = JobSection.model_json_schema(schema_generator=_Generator)
    for section in made["$defs"].values():
        del section["title"]
        section["description"] = section["description"].replace("``", "")
    return {"$schema": GenerateJsonSchema.schema_dialect} | made | {"title": "distlaunch.yaml"}


def schema_text() -> str:
    """Return the schema as a file holds it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


class _Generator(GenerateJsonSchema):
    """Keeps to what an editor shows."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - of no field
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """Leave defaults out: those of sections are what reading makes of them."""
        return self.generate_inner(schema["schema"])

    def dict_schema(self, schema: Any) -> dict[str, Any]:
        """Let an editor mark a name that fits no pattern."""
        made = super().dict_schema(schema)
        return made | {"additionalProperties": False} if "patternProperties" in made else made
