"""AI Platform's format: all of the API's schema is known and kept, and nothing beyond it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import get_args

import googleapiclient.discovery_cache
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.alias_generators import to_snake

from distlaunch.errors import JobFileError
from distlaunch.job.ai_platform import AiPlatformFile, read
from distlaunch.job.ai_platform_sections import AiPlatformJob
from distlaunch.job.yaml_marks import Document

PREDICTION = {"predictionInput", "predictionOutput"}  # jobs of another kind
INT32 = st.integers(0, 2**31 - 1)
BY_FORMAT = {
    "int32": INT32,
    "int64": st.integers(0, 2**63 - 1).map(str),
    "double": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
    "google-duration": st.from_regex(r"[0-9]{1,9}(\.[0-9]{1,9})?s", fullmatch=True),
    "google-datetime": st.datetimes().map(lambda time: f"{time.isoformat()}Z"),
    "byte": st.binary(max_size=9).map(bytes.hex),
}
TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029\ufeff\x85"),
    max_size=12,
)


@cache
def schemas() -> dict[str, dict]:
    folder = Path(googleapiclient.discovery_cache.__file__).parent
    api = json.loads((folder / "documents/ml.v1.json").read_text(encoding="utf-8"))
    return {name.removeprefix("GoogleCloudMlV1__"): it for name, it in api["schemas"].items()}


def named(reference: str) -> dict:
    return schemas()[reference.removeprefix("GoogleCloudMlV1__")]


def properties(name: str) -> dict[str, dict]:
    found = schemas()[name]["properties"]
    return {key: it for key, it in found.items() if key not in PREDICTION}


def documents(schema: dict) -> st.SearchStrategy:
    """Return a strategy for what a schema of the API allows."""
    schema = named(schema["$ref"]) if "$ref" in schema else schema
    if "properties" in schema:
        parts = {key: it for key, it in schema["properties"].items() if key not in PREDICTION}
        wanted = {key: documents(it) for key, it in parts.items()}
        needed = {key: wanted.pop(key) for key in list(wanted) if key == "trainingInput"}
        return st.fixed_dictionaries(needed, optional=wanted)
    if "additionalProperties" in schema:
        return st.dictionaries(TEXT, documents(schema["additionalProperties"]), max_size=3)
    if "items" in schema:
        return st.lists(documents(schema["items"]), max_size=3)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema["type"] == "boolean":
        return st.booleans()
    return BY_FORMAT.get(schema.get("format", ""), TEXT)


def parsed(text: str) -> AiPlatformFile:
    return read(Document(text), Path("/config.yaml"))


def problems(text: str) -> list[str]:
    with pytest.raises(JobFileError) as refusal:
        parsed(text)
    return [line.removeprefix("/config.yaml:") for line in refusal.value.lines]


def sections(of: type[BaseModel] = AiPlatformJob, name: str = "Job") -> dict[str, type[BaseModel]]:
    """Return every section that can be reached from one, by the name of its schema."""
    found = {name: of}
    for field in of.model_fields.values():
        kinds = [kind for part in get_args(field.annotation) for kind in (part, *get_args(part))]
        for kind in [field.annotation, *kinds]:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= sections(kind, kind.__name__)
    return found


SECTIONS = sections() | {"Scheduling": sections()["SchedulingConfig"]}
SECTIONS.pop("SchedulingConfig")


def test_every_message_of_a_training_job_has_a_section():
    def reached(name: str) -> set[str]:
        text = json.dumps(properties(name))
        nearest = {part.split('"')[0] for part in text.split('"$ref": "GoogleCloudMlV1__')[1:]}
        nearest.discard("TrainingOutput")
        return {name}.union(*map(reached, nearest))

    assert SECTIONS.keys() == reached("Job")


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_has_the_fields_of_the_api_and_no_others(name):
    known = {field.alias for field in SECTIONS[name].model_fields.values()}
    assert known == properties(name).keys()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (name, key)
        for name in SECTIONS
        for key, it in properties(name).items()
        if "enum" in it and name != "Job"
    ],
)
def test_an_enum_has_the_values_of_the_api_and_no_others(name, key):
    [kind] = [
        field.annotation for field in SECTIONS[name].model_fields.values() if field.alias == key
    ]
    literal = next(part for part in get_args(kind) if part is not type(None))
    while get_args(literal) and not isinstance(get_args(literal)[0], str):
        literal = get_args(literal)[0]
    assert list(get_args(literal)) == properties(name)[key]["enum"]


def test_training_input_has_26_fields():
    assert len(SECTIONS["TrainingInput"].model_fields) == 26


@given(document=documents(schemas()["Job"]))
def test_what_is_read_is_written_again_from_json(document):
    assert parsed(json.dumps(document, ensure_ascii=False)).dump() == document


@given(document=documents(schemas()["Job"]))
def test_what_is_read_is_written_again_from_yaml(document):
    assert parsed(yaml.safe_dump(document, allow_unicode=True)).dump() == document


@given(document=documents(schemas()["TrainingInput"]))
def test_names_may_be_in_snake_case(document):
    snaked = {"training_input": in_snake_case(document)}
    assert parsed(json.dumps(snaked, ensure_ascii=False)).training_input.dump() == document


def in_snake_case(document):
    if isinstance(document, dict):
        return {to_snake(key): in_snake_case(value) for key, value in document.items()}
    if isinstance(document, list):
        return [in_snake_case(item) for item in document]
    return document
