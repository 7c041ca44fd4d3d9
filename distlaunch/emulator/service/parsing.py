"""JSON → Google's messages, with Google's words for what does not fit."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.service.answers import violations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.emulator.store import Collection

ROOTS: dict[Collection, str] = {
    "customJobs": "custom_job",
    "hyperparameterTuningJobs": "hyperparameter_tuning_job",
}
"""What a job of each collection is called in the paths of Google's errors."""

_OUTPUT_ONLY = (
    "name",
    "state",
    "create_time",
    "start_time",
    "end_time",
    "update_time",
    "error",
    "trials",
    "web_access_uris",
    "satisfies_pzs",
    "satisfies_pzi",
)
_INTEGERS = {
    "TYPE_INT32": (-(1 << 31), (1 << 31) - 1),
    "TYPE_UINT32": (0, (1 << 32) - 1),
    "TYPE_INT64": (-(1 << 63), (1 << 63) - 1),
    "TYPE_UINT64": (0, (1 << 64) - 1),
}
_FLOATS = ("TYPE_DOUBLE", "TYPE_FLOAT")
_DURATION = re.compile(r"-?\d{1,12}(\.\d{1,9})?s", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,4})?", re.ASCII)
_FREE = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")

Problem = tuple[str, str]


def parse(collection: Collection, data: dict[str, Any]) -> Any:
    """Return the message of a new job; what only Google fills in is left out.

    Raises
    ------
    Refused
        If the JSON is no such message, with all that is wrong.
    """
    from google.protobuf import json_format

    message = _message_types()[collection]()
    root = ROOTS[collection]
    problems = list(_in_message(data, message.DESCRIPTOR, root))
    if problems:
        raise violations(problems)
    try:
        json_format.ParseDict(data, message)
    except json_format.ParseError as problem:
        text = f"Invalid value at '{root}': {problem}"
        raise violations([(root, text)]) from None
    for name in _OUTPUT_ONLY:
        if name in message.DESCRIPTOR.fields_by_name:
            message.ClearField(name)
    return message


def as_json(message: Any) -> dict[str, Any]:
    """Return a message as JSON with Google's names; enums are told by name."""
    from google.protobuf import json_format

    made: dict[str, Any] = json_format.MessageToDict(message)
    return made


def with_numbers(collection: Collection, job: dict[str, Any]) -> dict[str, Any]:
    """Return a job's JSON with its enums as numbers, as ``enum-encoding=int`` asks for it."""
    from google.protobuf import json_format

    message = json_format.ParseDict(job, _message_types()[collection]())
    made: dict[str, Any] = json_format.MessageToDict(message, use_integers_for_enums=True)
    return made


def states() -> frozenset[str]:
    """Return the names of a job's states."""
    state = _message_types()["customJobs"].DESCRIPTOR.fields_by_name["state"]
    return frozenset(state.enum_type.values_by_name)


@cache
def _message_types() -> dict[Collection, Any]:
    from google.cloud.aiplatform_v1 import types

    return {
        "customJobs": types.CustomJob.pb(),
        "hyperparameterTuningJobs": types.HyperparameterTuningJob.pb(),
    }


def preload() -> None:
    """Import Google's messages, which takes most of a second."""
    _message_types()


def _in_message(data: Any, kind: Any, path: str) -> Iterator[Problem]:
    """Tell what in some JSON does not fit a type of message."""
    if not isinstance(data, dict):
        yield _invalid(path, f"type.googleapis.com/{kind.full_name}", data)
        return
    fields = {field.json_name: field for field in kind.fields}
    fields |= {field.name: field for field in kind.fields}
    chosen: dict[str, str] = {}
    for key, value in data.items():
        field = fields.get(key)
        if field is None:
            where = f"Unknown name \"{key}\" at '{path}'"
            yield path, f"Invalid JSON payload received. {where}: Cannot find field."
        elif value is not None:
            yield from _in_field(value, field, f"{path}.{field.name}")
            oneof = field.containing_oneof
            if oneof is not None and chosen.setdefault(oneof.name, key) != key:
                taken = f"oneof field '{oneof.name}' is already set. Cannot set '{key}'"
                yield path, f"Invalid value at '{path}' (oneof), {taken}"


def _in_field(value: Any, field: Any, path: str) -> Iterator[Problem]:
    if not field.is_repeated:
        yield from _in_value(value, field, path)
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        yield from _in_map(value, field.message_type, path)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _in_value(each, field, f"{path}[{index}]")
    else:
        yield _invalid(path, _type_name(field), value)


def _in_map(value: Any, entry: Any, path: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield _invalid(path, "type.googleapis.com/google.protobuf.Map", value)
        return
    for index, each in enumerate(value.values()):
        yield from _in_value(each, entry.fields_by_name["value"], f"{path}[{index}].value")


def _in_value(value: Any, field: Any, path: str) -> Iterator[Problem]:
    kind = field.message_type
    if kind is not None and not kind.full_name.startswith("google.protobuf."):
        yield from _in_message(value, kind, path)
    elif not _fits(value, field):
        yield _invalid(path, _type_name(field), value)


def _fits(value: Any, field: Any) -> bool:
    name = _type_name(field)
    if field.enum_type is not None:
        return _fits_enum(value, field.enum_type)
    if name in _INTEGERS:
        lowest, highest = _INTEGERS[name]
        number = _number(value)
        return number is not None and int(number) == number and lowest <= number <= highest
    if field.message_type is not None:
        return _fits_known(value, field.message_type)
    if name == "TYPE_BOOL":
        return isinstance(value, bool) or value in ("true", "false")
    return _number(value) is not None if name in _FLOATS else isinstance(value, str)


def _fits_enum(value: Any, kind: Any) -> bool:
    if isinstance(value, str):
        return value in kind.values_by_name
    return _is_integer(value) and value in kind.values_by_number


def _fits_known(value: Any, kind: Any) -> bool:
    """Whether a value fits one of protobuf's own messages, which are told as plain JSON."""
    if kind.full_name in _FREE:
        return True
    if kind.full_name.endswith("Value"):
        return _fits(value, kind.fields_by_name["value"])
    if kind.full_name == "google.protobuf.Duration":
        return isinstance(value, str) and _DURATION.fullmatch(value) is not None
    return isinstance(value, str)


def _number(value: Any) -> float | None:
    """Return a number, which may be written as text, as 64-bit integers are."""
    if _is_integer(value):
        return int(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        with suppress(ValueError):
            return int(value)
        value = float(value)
    return value if isinstance(value, float) and math.isfinite(value) else None


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _type_name(field: Any) -> str:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    for kind in (field.message_type, field.enum_type):
        if kind is not None:
            return f"type.googleapis.com/{kind.full_name}"
    return str(FieldDescriptorProto.Type.Name(field.type))


def _invalid(path: str, kind: str, value: Any) -> Problem:
    import json

    told = json.dumps(value, ensure_ascii=False)
    return path, f"Invalid value at '{path}' ({kind}), {told[:200]}"
