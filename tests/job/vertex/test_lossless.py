"""Vertex AI's file → Job → request loses nothing: any job, made from Google's own descriptions."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from google.cloud import aiplatform_v1
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor as Field
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distlaunch.job import vertex
from distlaunch.job.load import load_job
from distlaunch.job.vertex import proto
from distlaunch.job.vertex.to_job import OUTPUT_ONLY_FIELDS

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {
    each.__name__: type(each.pb(each()))
    for each in (
        aiplatform_v1.CustomJobSpec,
        aiplatform_v1.CustomJob,
        aiplatform_v1.HyperparameterTuningJob,
    )
}
SPECS = {"CustomJob": "job_spec", "HyperparameterTuningJob": "trial_job_spec"}
WIDTHS = {
    Field.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    Field.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
}
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
lines = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
tricky = texts | st.sampled_from(["no", "012", "1:30", "~", "${HOME}", "$${X}", "- a", "{{ x }}"])
labels = st.dictionaries(
    st.from_regex("[a-zé][a-z0-9_-]{0,8}", fullmatch=True),
    st.from_regex("[a-z0-9é_-]{0,8}", fullmatch=True),
    max_size=3,
)
variables = st.from_regex("[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
BY_NAME = {  # rules beyond their types
    "display_name": lines,
    "labels": labels,
    "image_uri": st.text("abc/:.", max_size=6),
    "executor_image_uri": st.text("abc/:.", max_size=6),
    "name": variables,
}
WELL_KNOWN = {
    "Duration": st.builds("{}s".format, st.integers(0, 10**9) | st.just("0.500")),
    "Timestamp": st.just("2026-11-21T12:00:00Z"),
    "BoolValue": st.booleans(),
    "Int32Value": st.integers(-5, 5),
}


def jobs(kind: str) -> st.SearchStrategy[Any]:
    """Any job with a chief, as a real message."""
    return contents(KINDS[kind].DESCRIPTOR, 5).map(
        lambda content: parsed(kind, with_chief(kind, content))
    )


def parsed(kind: str, content: dict[str, Any]) -> Any:
    return json_format.ParseDict(content, KINDS[kind]())


def with_chief(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    """Return a job with the one thing that all need, and other pools with a count."""
    spec = content.setdefault(SPECS[kind], {}) if kind in SPECS else content
    pools = spec.get("worker_pool_specs") or [{}]
    for pool in filter(None, pools):
        pool["replica_count"] = max(1, abs(pool.get("replica_count", 1)) - 1)
    spec["worker_pool_specs"] = [{**pools[0], "replica_count": 1}, *pools[1:]]
    return content


def contents(kind: Any, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    """What a message may hold, by its description."""
    ignored = OUTPUT_ONLY_FIELDS if kind.name in KINDS else ()
    plain = {
        field.name: values(field, depth)
        for field in kind.fields
        if field.containing_oneof is None and field.json_name not in ignored
    }
    needed, optional = (plain, {}) if kind.name == "EnvVar" else ({}, plain)
    message = st.fixed_dictionaries(needed, optional=optional)
    for group in kind.oneofs:
        members = (st.fixed_dictionaries({each.name: values(each, depth)}) for each in group.fields)
        one = st.one_of(st.just({}), *members)
        message = st.builds(lambda some, more: some | more, message, one)
    return message


def values(field: Any, depth: int) -> st.SearchStrategy[Any]:
    if field.name in BY_NAME:
        return BY_NAME[field.name]
    if field.is_repeated:
        return st.lists(value(field, depth), max_size=2 if depth > 1 else 0)
    return value(field, depth)


def value(field: Any, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        anything = st.deferred(lambda: contents(field.message_type, depth - 1))
        return WELL_KNOWN.get(field.message_type.name, anything)
    if field.enum_type is not None:
        return st.sampled_from([each.name for each in field.enum_type.values])
    if field.cpp_type in WIDTHS:
        return st.integers(*WIDTHS[field.cpp_type])
    if field.cpp_type == Field.CPPTYPE_BOOL:
        return st.booleans()
    if field.cpp_type == Field.CPPTYPE_DOUBLE:
        finite = st.floats(allow_nan=False, allow_infinity=False)
        return finite | st.sampled_from(["Infinity", "-Infinity"])
    return tricky


def escaped(value: Any) -> Any:
    """Write ``${NAME}`` so that no variable is meant."""
    if isinstance(value, dict):
        return {key: escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [escaped(item) for item in value]
    return (
        re.sub(r"\$\{\w+\}", r"$\g<0>", value, flags=re.ASCII) if isinstance(value, str) else value
    )


def written(message: Any, form: str, *, snake: bool, defaults: bool) -> str:
    content = escaped(
        json_format.MessageToDict(
            message,
            preserving_proto_field_name=snake,
            always_print_fields_with_no_presence=defaults,
        )
    )
    if form == "yaml":
        as_json = json.dumps(content, ensure_ascii=False)
        is_plain = not re.search("[\x85\u2028\u2029]", as_json)  # PyYAML would fold these
        return yaml.safe_dump(content, allow_unicode=is_plain)
    return json.dumps(content, ensure_ascii=form == "ascii", indent="\t")


def sent(file: Path) -> tuple[str, dict[str, Any]]:
    """Return what a submit of a file would send, with nothing of its own."""
    job = load_job(file.parent, config=file).job
    return vertex.collection(job), vertex.plain_request(job, image=None, labels={}, job_dir=None)


forms = st.fixed_dictionaries(
    dict.fromkeys(["snake", "defaults"], st.booleans())
    | {"form": st.sampled_from(["yaml", "json", "ascii"])}
)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_a_file_comes_out_as_it_went_in(tmp_path_factory, kind, data):
    message = data.draw(jobs(kind))
    folder = tmp_path_factory.getbasetemp() / "lossless"
    folder.mkdir(exist_ok=True)
    file = folder / f"{kind}.yaml"
    file.write_text(written(message, **data.draw(forms)), encoding="utf-8")
    collection, request = sent(file)
    proto.validate_request(collection, request)
    if kind == "CustomJobSpec":
        request = request["jobSpec"]
    elif not message.display_name:
        del request["displayName"]
    assert parsed(kind, request) == message


@pytest.mark.parametrize("kind", ["CustomJob", "HyperparameterTuningJob"])
def test_what_google_fills_in_is_known(kind):
    description = getattr(aiplatform_v1, kind).__doc__
    output_only = re.findall(r"^ +(\w+) \([^\n]*\n +Output only\.", description, flags=re.MULTILINE)
    fields = {each.name: each.json_name for each in KINDS[kind].DESCRIPTOR.fields}
    assert {fields[name] for name in output_only} == OUTPUT_ONLY_FIELDS & set(fields.values())
