"""Jobs as Google's messages: read from JSON, checked and written as JSON."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.api_error import ApiError, field_error
from distlaunch.job import machine_catalogue

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

_WEEK = 7 * 24 * 3600
_LOG_SCALES = ("UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE")
_RANGES = ("double_value_spec", "integer_value_spec")


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


def check_location(location: str) -> None:
    """Raise `ApiError` if Vertex AI has no such location."""
    if location not in machine_catalogue.bundled().regions:
        raise ApiError(400, f"Location {location} is not supported by this service.")


def check_job(job: Any) -> None:
    """Raise `ApiError` for the first thing that is wrong with the message of a new job."""
    _require(job.display_name, "display_name", "Display name is required.")
    if "job_spec" in job.DESCRIPTOR.fields_by_name:
        _check_spec(job.job_spec, "job_spec")
        return
    counts = (job.max_trial_count, job.parallel_trial_count)
    _require(min(counts) > 0, "max_trial_count", "Trial counts must be greater than 0.")
    study, path = job.study_spec, "study_spec"
    _require(study.metrics, f"{path}.metrics", "At least one metric is required.")
    _require(study.parameters, f"{path}.parameters", "At least one parameter is required.")
    for number, parameter in enumerate(study.parameters):
        _check_parameter(parameter, f"{path}.parameters[{number}]")
    _check_spec(job.trial_job_spec, "trial_job_spec")


def _require(condition: object, path: str, message: str) -> None:
    if not condition:
        raise field_error(path, message)


def _check_spec(spec: Any, path: str) -> None:
    pools = [(n, pool) for n, pool in enumerate(spec.worker_pool_specs) if pool.ListFields()]
    has_first = bool(pools) and pools[0][0] == 0
    _require(has_first, f"{path}.worker_pool_specs[0]", "The first worker pool is required.")
    for number, pool in pools:
        _check_pool(pool, f"{path}.worker_pool_specs[{number}]", number)
    seconds = spec.scheduling.timeout.ToTimedelta().total_seconds()
    is_limited = _enum_name(spec.scheduling, "strategy") == "FLEX_START"
    is_valid = 0 <= seconds <= (_WEEK if is_limited else seconds)
    _require(is_valid, f"{path}.scheduling.timeout", "The timeout must be 0s to 604800s (7 days).")


def _check_pool(pool: Any, path: str, number: int) -> None:
    replicas = f"{path}.replica_count"
    _require(pool.replica_count > 0, replicas, "The replica count must be greater than 0.")
    _require(number or pool.replica_count == 1, replicas, "The replica count must be 1.")
    has_image = pool.container_spec.image_uri or pool.python_package_spec.executor_image_uri
    _require(has_image, path, "An image URI is required.")
    _check_machine(pool.machine_spec, f"{path}.machine_spec")


def _check_machine(spec: Any, path: str) -> None:
    name, count = spec.machine_type, spec.accelerator_count
    kind = machine_catalogue.bundled().machines.get(name)
    if kind is None:
        text = f'Machine type "{name}" is not supported for custom training.'
        raise field_error(f"{path}.machine_type", text)
    if spec.tpu_topology or kind.topologies:
        is_known = spec.tpu_topology in kind.topologies
        text = f"Topologies of {name}: {', '.join(kind.topologies) or 'none'}."
        _require(is_known, f"{path}.tpu_topology", text)
    elif count or spec.accelerator_type or kind.needs_accelerator:
        accelerator = _enum_name(spec, "accelerator_type")
        text = f"{count} {accelerator} are not supported on machine type {name}."
        _require(kind.takes(accelerator, count), f"{path}.accelerator_type", text)


def _check_parameter(parameter: Any, path: str) -> None:
    text = "The emulator does not support conditional_parameter_specs."
    _require(not parameter.conditional_parameter_specs, path, text)
    kind = parameter.WhichOneof("parameter_value_spec")
    _require(kind, path, "A value spec (double_, integer_, categorical_, discrete_) is required.")
    spec = getattr(parameter, kind)
    values = [spec.min_value, spec.max_value] if kind in _RANGES else list(spec.values)
    _require(values, f"{path}.{kind}.values", "At least one value is required.")
    if kind != "categorical_value_spec":
        is_sorted = all(lower <= upper for lower, upper in pairwise(values))
        _require(is_sorted, f"{path}.{kind}", "The values must be in increasing order.")
        is_positive = values[0] > 0 or _enum_name(parameter, "scale_type") not in _LOG_SCALES
        text = "On a log scale all values must be greater than 0."
        _require(is_positive, f"{path}.scale_type", text)


def _enum_name(message: Any, field: str) -> str:
    values = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    return str(values[getattr(message, field)].name)
