"""Jobs as JSON and as Google's messages."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.api_error import ApiError

if TYPE_CHECKING:
    from distlaunch.emulator.store import Collection

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


def parse_job(collection: Collection, data: dict[str, Any]) -> Any:
    """Return the message of a new job, without the fields that only Google sets."""
    from google.protobuf import json_format

    message = _message_types()[collection]()
    try:
        json_format.ParseDict(data, message)
    except (json_format.ParseError, TypeError, ValueError) as problem:
        raise ApiError(400, f"Invalid JSON payload received. {problem}") from None
    for name in _OUTPUT_ONLY:
        if name in message.DESCRIPTOR.fields_by_name:
            message.ClearField(name)
    return message


def as_json(message: Any) -> dict[str, Any]:
    """Return a message as JSON with Google's names and with enums by name."""
    from google.protobuf import json_format

    job: dict[str, Any] = json_format.MessageToDict(message)
    return job


def with_enum_numbers(collection: Collection, job: dict[str, Any]) -> dict[str, Any]:
    """Return a job's JSON with enums by number, for ``enum-encoding=int``."""
    from google.protobuf import json_format

    message = json_format.ParseDict(job, _message_types()[collection]())
    numbered: dict[str, Any] = json_format.MessageToDict(message, use_integers_for_enums=True)
    return numbered


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
