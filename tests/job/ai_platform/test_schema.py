"""AI Platform's format: all of the API's schema is known and kept, and nothing beyond it."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import googleapiclient.discovery_cache
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic.alias_generators import to_snake

from distlaunch.errors import JobFileError
from distlaunch.job import vertex
from distlaunch.job.ai_platform import AiPlatformFile, AiPlatformJob, read
from distlaunch.job.ai_platform.from_job import from_job
from distlaunch.job.ai_platform.to_job import to_job
from distlaunch.job.model import Cluster, Job, Machine, Pool
from distlaunch.job.vertex.proto import validate_request
from distlaunch.job.yaml_document import Document

PREDICTION = {"predictionInput", "predictionOutput"}  # jobs of another kind
BY_FORMAT = {
    "int32": st.integers(0, 2**31 - 1),
    "int64": st.integers(0, 2**63 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
    "google-duration": st.from_regex(r"[0-9]{1,9}(\.[0-9]{1,9})?s", fullmatch=True),
    "google-datetime": st.datetimes().map(lambda time: f"{time.isoformat()}Z"),
    "byte": st.binary(max_size=9).map(bytes.hex),
}
TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029\ufeff\x85"),
    max_size=12,
).filter(lambda text: not re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", text))
# PyYAML writes the text 1e5 without quotes, though it is a number to everyone else.


@cache
def schemas() -> dict[str, dict]:
    folder = Path(googleapiclient.discovery_cache.__file__).parent
    api = json.loads((folder / "documents/ml.v1.json").read_text(encoding="utf-8"))
    return {
        name.removeprefix("GoogleCloudMlV1__"): schema for name, schema in api["schemas"].items()
    }


def properties(name: str) -> dict[str, dict]:
    fields = schemas()[name.removeprefix("GoogleCloudMlV1__")]["properties"]
    return {key: field for key, field in fields.items() if key not in PREDICTION}


def documents(schema: dict, by_name: dict[str, Any] | None = None) -> st.SearchStrategy:
    """Return a strategy for what a schema of the API allows; `by_name` has some fields' own."""
    by_name = by_name or {}
    if "$ref" in schema:
        fields = properties(schema["$ref"])
        parts = {key: by_name.get(key, documents(it, by_name)) for key, it in fields.items()}
        parts = {key: part for key, part in parts.items() if not part.is_empty}
        needed = {key: parts.pop(key) for key in list(parts) if key == "trainingInput"}
        return st.fixed_dictionaries(needed, optional=parts)
    if "additionalProperties" in schema:
        return st.dictionaries(TEXT, documents(schema["additionalProperties"]), max_size=3)
    if "items" in schema:
        return st.lists(documents(schema["items"], by_name), max_size=3)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema["type"] == "boolean":
        return st.booleans()
    return BY_FORMAT.get(schema.get("format", ""), TEXT)


def parsed(text: str) -> AiPlatformFile:
    return read(Document(text), Path("/config.yaml"))


OWN = AiPlatformJob.model_json_schema()
OWN_SECTIONS = OWN.pop("$defs") | {"AiPlatformJob": OWN}
NAMES = {"AiPlatformJob": "Job", "SchedulingConfig": "Scheduling"}  # where they differ


def enum_of(schema: dict) -> list[str] | None:
    return next((part["enum"] for part in schema.get("anyOf", []) if "enum" in part), None)


@pytest.mark.parametrize("name", OWN_SECTIONS)
def test_a_section_has_the_fields_and_enums_of_the_api_and_no_others(name):
    fields = properties(NAMES.get(name, name))
    own = {key: enum_of(field) for key, field in OWN_SECTIONS[name]["properties"].items()}
    of_api = {key: field.get("enum") for key, field in fields.items()}
    assert own == of_api | ({"state": None} if "state" in of_api else {})


JOB = {"$ref": "Job"}
TRAINING_INPUT = {"$ref": "TrainingInput"}


@given(document=documents(JOB), snake=st.booleans())
def test_everything_is_read_in_either_spelling(document, snake):
    written = in_snake_case(document) if snake else document
    read_back = parsed(yaml.safe_dump(written, allow_unicode=True)).training_input
    assert read_back == document["trainingInput"]


def in_snake_case(document):
    if isinstance(document, dict):
        snaked = {to_snake(key): in_snake_case(value) for key, value in document.items()}
        return snaked | {"labels": document["labels"]} if "labels" in document else snaked
    if isinstance(document, list):
        return [in_snake_case(item) for item in document]
    return document


SANE = {
    "count": st.integers(1, 8),
    "workerCount": st.integers(0, 3),
    "parameterServerCount": st.integers(0, 3),
    "evaluatorCount": st.integers(0, 3),
    "scaleTier": st.sampled_from(["CUSTOM", "CUSTOM", "CUSTOM", "BASIC", "STANDARD_1"]),
    "imageUri": st.just("image:1"),
    "jobDir": st.just("gs://bucket/job"),
    "packageUris": st.nothing(),
    "pythonModule": st.nothing(),
    "containerCommand": st.nothing(),
    **{
        f"{role}Type": st.sampled_from(["n1-standard-8", "n1-highmem-8", "standard"])
        for role in ("master", "worker", "parameterServer", "evaluator")
    },
}


def translated(training_input: dict) -> tuple[Job, tuple[str, ...]]:
    text = json.dumps({"trainingInput": training_input}, indent=1, ensure_ascii=False)
    return to_job(parsed(text), Job("job", Cluster(Pool(Machine("")))), folder=Path("/"))


def request(job: Job) -> dict[str, Any]:
    """Return the request of a job; Google's own messages take it."""
    body = vertex.build_request(job, image="own", labels={}, job_dir=None)
    validate_request(vertex.collection(job), body)
    return body


RICH = """
scaleTier: CUSTOM
masterType: n1-standard-8
masterConfig:
  {imageUri: x, containerCommand: [run], acceleratorConfig: {type: NVIDIA_TESLA_T4, count: 1}}
workerType: n1-standard-4
workerCount: 2
workerConfig: {imageUri: y, containerArgs: [--a], diskConfig: {bootDiskSizeGb: 200}}
jobDir: gs://bucket/job
scheduling: {maxRunningTime: 60s}
hyperparameters:
  goal: MINIMIZE
  algorithm: GRID_SEARCH
  enableTrialEarlyStopping: true
  params:
  - {parameterName: a, type: DOUBLE, minValue: 0.1, maxValue: 1, scaleType: UNIT_LOG_SCALE}
  - {parameterName: b, type: INTEGER, minValue: 1, maxValue: 2}
  - {parameterName: c, type: CATEGORICAL, categoricalValues: [x]}
  - {parameterName: d, type: DISCRETE, discreteValues: [2.5, 1]}
"""


@example(document=yaml.safe_load(RICH))
@example(document={"pythonModule": "/"})
@given(document=documents(TRAINING_INPUT) | documents(TRAINING_INPUT, SANE))
def test_every_job_is_translated_there_and_back_or_refused_in_its_place(document):
    try:
        job, notes = translated(document)
    except JobFileError as error:
        for line in error.lines:
            assert re.match(r"/config\.yaml:[0-9]+:[0-9]+: trainingInput\.[A-Za-z0-9.]+: ", line)
        return
    assert all("\n" not in note for note in notes)
    if job.tuning or not vertex.is_tuned(job):
        written, left_out = from_job(job, "own")
        assert left_out == ()
        assert request(translated(written)[0]) == request(job)
