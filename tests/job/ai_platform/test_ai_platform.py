"""AI Platform's format: all of the API's schema is known and kept, and nothing beyond it."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, get_args

import googleapiclient.discovery_cache
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.alias_generators import to_snake

from distlaunch.errors import JobFileError
from distlaunch.job import vertex
from distlaunch.job.ai_platform import AiPlatformFile, from_job, is_training_input, read
from distlaunch.job.ai_platform.models import AiPlatformJob
from distlaunch.job.ai_platform.to_job import to_job
from distlaunch.job.model import Cluster, Job, Machine, Pool
from distlaunch.job.vertex.proto import validate_request
from distlaunch.job.yaml_document import Document

if TYPE_CHECKING:
    from collections.abc import Mapping

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
).filter(lambda text: not re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", text))
# PyYAML writes the text 1e5 without quotes, though it is a number to everyone else.


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


def documents(
    schema: dict, by_name: Mapping[str, st.SearchStrategy] = MappingProxyType({})
) -> st.SearchStrategy:
    """Return a strategy for what a schema of the API allows.

    Parameters
    ----------
    by_name
        Strategies for fields of some names, in place of all that is allowed there.
    """
    schema = named(schema["$ref"]) if "$ref" in schema else schema
    if "properties" in schema:
        parts = {key: it for key, it in schema["properties"].items() if key not in PREDICTION}
        wanted = {key: by_name.get(key, documents(it, by_name)) for key, it in parts.items()}
        wanted = {key: each for key, each in wanted.items() if not each.is_empty}
        needed = {key: wanted.pop(key) for key in list(wanted) if key == "trainingInput"}
        return st.fixed_dictionaries(needed, optional=wanted)
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


def problems(text: str) -> list[str]:
    with pytest.raises(JobFileError) as error:
        parsed(text)
    return [line.removeprefix("/config.yaml:") for line in error.value.lines]


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


@given(document=documents(schemas()["Job"]))
def test_what_is_read_is_written_again(document):
    written = parsed(yaml.safe_dump(document, allow_unicode=True)).training_input.dump()
    assert written == document["trainingInput"]


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


BROKEN = {
    "not under trainingInput": (
        "scaleTier: BASIC\nregion: us-central1\n",
        ["1:1: scaleTier: expected under 'trainingInput:', each line indented by two more spaces"],
    ),
    "a prediction": (
        "jobId: a\nprediction_input: {modelName: a}\n",
        [
            "2:1: prediction_input: a batch prediction, which ended with AI Platform; only "
            "training runs"
        ],
    ),
    "unknown names": (
        "trainingInput:\n"
        "  scaleTeir: BASIC\n"
        "  master_config: {image: a, disk_config: {size: 1}}\n"
        "job: a\n",
        [
            "2:3: trainingInput.scaleTeir: unknown key; did you mean 'scaleTier'?",
            "3:19: trainingInput.master_config.image: unknown key; did you mean 'imageUri'?",
            "3:43: trainingInput.master_config.disk_config.size: unknown key; known here: "
            "bootDiskType, bootDiskSizeGb",
            "4:1: job: unknown key; did you mean 'jobId'?",
        ],
    ),
    "a name in both ways": (
        "trainingInput:\n  masterType: standard\n  masterConfig: {imageUri: a, image_uri: b}\n",
        [
            "3:17: trainingInput.masterConfig: expected imageUri or image_uri and not both, got a "
            "section"
        ],
    ),
    "values": (
        "trainingInput:\n"
        "  scaleTier: CUSTOMS\n"
        "  workerCount: two\n"
        "  useChiefInTfConfig: maybe\n"
        "  args: --epochs=5\n"
        "  masterConfig: {acceleratorConfig: {type: NVIDIA_L4, count: -1}, containerArgs: [[a]]}\n"
        "  scheduling: {maxRunningTime: 7200, maxWaitTime: 1h, priority: 0.5}\n"
        "  hyperparameters: {maxTrials: 1e3, params: [{minValue: nan, discreteValues: [a]}]}\n",
        [
            "2:14: trainingInput.scaleTier: expected BASIC, STANDARD_1, PREMIUM_1, "
            "BASIC_GPU, BASIC_TPU or CUSTOM, got 'CUSTOMS'; did you mean 'CUSTOM'?",
            "3:16: trainingInput.workerCount: expected a whole number of 0 or more, got 'two'",
            "4:23: trainingInput.useChiefInTfConfig: expected true or false, got 'maybe'",
            "5:9: trainingInput.args: expected a list, such as [first, second], got '--epochs=5'",
            "6:44: trainingInput.masterConfig.acceleratorConfig.type: expected "
            "ACCELERATOR_TYPE_UNSPECIFIED, NVIDIA_TESLA_K80, NVIDIA_TESLA_P100, "
            "NVIDIA_TESLA_V100, NVIDIA_TESLA_P4, NVIDIA_TESLA_T4, NVIDIA_TESLA_A100, TPU_V2, "
            "TPU_V3, TPU_V2_POD, TPU_V3_POD or TPU_V4_POD, got 'NVIDIA_L4'; did you mean "
            "'NVIDIA_TESLA_T4'?",
            "6:62: trainingInput.masterConfig.acceleratorConfig.count: expected a whole "
            "number of 0 or more, got '-1'",
            "6:83: trainingInput.masterConfig.containerArgs.0: expected text, got a list",
            "7:32: trainingInput.scheduling.maxRunningTime: expected seconds with their "
            "unit, such as 7200s, got '7200'",
            "7:51: trainingInput.scheduling.maxWaitTime: expected seconds with their unit, "
            "such as 7200s, got '1h'",
            "7:65: trainingInput.scheduling.priority: expected a whole number of 0 or more, "
            "got '0.5'",
            "8:32: trainingInput.hyperparameters.maxTrials: expected a whole number of 0 or "
            "more, got '1e3'",
            "8:57: trainingInput.hyperparameters.params.0.minValue: expected a number, got 'nan'",
            "8:79: trainingInput.hyperparameters.params.0.discreteValues.0: expected a "
            "number, got 'a'",
        ],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_all_problems_are_reported_at_once(name):
    text, lines = BROKEN[name]
    assert problems(text) == lines


@pytest.mark.parametrize(
    ("text", "is_ours"),
    [
        ("trainingInput: {}", True),
        ("{jobId: a, training_input: {}}", True),
        ("masterType: standard", True),
        ("predictionInput: {}", True),
        ("workerPoolSpecs: []", False),
        ("{displayName: a, jobSpec: {}}", False),
    ],
)
def test_the_format_is_known_by_its_names(text, is_ours):
    assert is_training_input(Document(text).data) is is_ours


BASE = Job("job", Cluster(Pool(Machine(""))))
SANE = {
    "count": st.integers(1, 8).map(str),
    "workerCount": st.integers(0, 3).map(str),
    "parameterServerCount": st.integers(0, 3).map(str),
    "evaluatorCount": st.integers(0, 3).map(str),
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
ANYTHING = documents(schemas()["TrainingInput"])
LIKELY = documents(schemas()["TrainingInput"], SANE)


@example(document={"pythonModule": "/"})
@given(document=ANYTHING | LIKELY)
def test_every_job_is_translated_into_what_google_takes_or_refused_in_its_place(document):
    text = json.dumps({"trainingInput": document}, indent=1, ensure_ascii=False)
    try:
        job, notes = to_job(parsed(text), folder=Path("/"), base=BASE)
    except JobFileError as error:
        for line in error.lines:
            assert re.match(r"/config\.yaml:[0-9]+:[0-9]+: trainingInput\.[A-Za-z0-9.]+: ", line)
    else:
        body = vertex.build_request(job, image="own", labels={}, job_dir=None)
        validate_request(vertex.collection(job), body)
        assert all("\n" not in note for note in notes)
        from_job(job, "own")
