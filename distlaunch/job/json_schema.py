"""The JSON schema of distlaunch.yaml, for editors, generated from its sections.

Google's fields under ``vertex`` are not in it; they are validated when the file is read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from distlaunch.job.schema import JobSection


def schema() -> dict[str, Any]:
    """Return the schema."""
    schema = JobSection.model_json_schema(schema_generator=_Generator)
    for section in schema["$defs"].values():
        del section["title"]
        section["description"] = section["description"].replace("``", "")
    meanings = json.loads(Path(__file__).with_name("key_meanings.json").read_text("utf-8"))
    for name, section in {**schema["$defs"], "JobSection": schema}.items():
        own = meanings["Pool"] | meanings.get(name.removesuffix("Section"), {})
        for key, value in section["properties"].items():
            value["title"] = own[key] if key in own else meanings["Cluster"][key]
    return {"$schema": GenerateJsonSchema.schema_dialect} | schema | {"title": "distlaunch.yaml"}


def schema_text() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


class _Generator(GenerateJsonSchema):
    """Leaves out what an editor does not show."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the same for all
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """Leave defaults out: those of sections are Python objects."""
        return self.generate_inner(schema["schema"])

    def dict_schema(self, schema: Any) -> dict[str, Any]:
        """Let an editor mark a name that matches no pattern."""
        generated = super().dict_schema(schema)
        if "patternProperties" not in generated:
            return generated
        return generated | {"additionalProperties": False}
