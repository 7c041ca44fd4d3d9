"""What a job must have, and which machines there are, by the launcher's catalogue."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.api_error import ApiError, field_error
from distlaunch.job import machine_catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

_WEEK = 7 * 24 * 3600
_LOG_SCALES = ("UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE")
_RANGES = ("double_value_spec", "integer_value_spec")

Problem = tuple[str, str]
"""The path of a field, and what is wrong with it."""


def check_location(location: str) -> None:
    """Raise `ApiError` if Vertex AI has no such location."""
    if location not in machine_catalogue.bundled().regions:
        raise ApiError(400, f"Location {location} is not supported by this service.")


def check_job(job: Any) -> None:
    """Raise `ApiError` for the first thing that is wrong with a message of a new job."""
    for path, message in _problems(job):
        raise field_error(path, message)


def _problems(job: Any) -> Iterator[Problem]:
    if not job.display_name:
        yield "display_name", "Display name is required."
    if "job_spec" in job.DESCRIPTOR.fields_by_name:
        yield from _spec_problems(job.job_spec, "job_spec")
        return
    if job.max_trial_count < 1 or job.parallel_trial_count < 1:
        yield "max_trial_count", "Trial counts must be greater than 0."
    if not job.study_spec.metrics or not job.study_spec.parameters:
        yield "study_spec", "At least one metric and one parameter are required."
    for number, parameter in enumerate(job.study_spec.parameters):
        yield from _parameter_problems(parameter, f"study_spec.parameters[{number}]")
    yield from _spec_problems(job.trial_job_spec, "trial_job_spec")


def _spec_problems(spec: Any, path: str) -> Iterator[Problem]:
    pools = [(n, pool) for n, pool in enumerate(spec.worker_pool_specs) if pool.ListFields()]
    if not pools or pools[0][0] != 0:
        yield f"{path}.worker_pool_specs[0]", "The first worker pool is required."
    for number, pool in pools:
        yield from _pool_problems(pool, f"{path}.worker_pool_specs[{number}]", number)
    seconds = spec.scheduling.timeout.ToTimedelta().total_seconds()
    is_flex_start = _enum_name(spec.scheduling, "strategy") == "FLEX_START"
    if seconds < 0 or (is_flex_start and seconds > _WEEK):
        yield f"{path}.scheduling.timeout", "The timeout must be 0s to 604800s (7 days)."


def _pool_problems(pool: Any, path: str, number: int) -> Iterator[Problem]:
    if pool.replica_count < 1 or (number == 0 and pool.replica_count != 1):
        expected = "1" if number == 0 else "greater than 0"
        yield f"{path}.replica_count", f"The replica count must be {expected}."
    package = pool.python_package_spec
    if not (pool.container_spec.image_uri or package.executor_image_uri):
        yield path, "An image URI is required."
    if pool.WhichOneof("task") == "python_package_spec" and not package.python_module:
        yield f"{path}.python_package_spec.python_module", "Python module is required."
    yield from _machine_problems(pool.machine_spec, f"{path}.machine_spec")


def _machine_problems(spec: Any, path: str) -> Iterator[Problem]:
    name, count = spec.machine_type, spec.accelerator_count
    kind = machine_catalogue.bundled().machines.get(name)
    if kind is None:
        text = f'Machine type "{name}" is not supported for custom training.'
        yield f"{path}.machine_type", text
    elif spec.tpu_topology or kind.topologies:
        if spec.tpu_topology not in kind.topologies:
            yield f"{path}.tpu_topology", f"Supported on {name}: {', '.join(kind.topologies)}."
    elif count or spec.accelerator_type or kind.needs_accelerator:
        accelerator = _enum_name(spec, "accelerator_type")
        if not kind.takes(accelerator, count):
            text = f"{count} {accelerator} are not supported on machine type {name}."
            yield f"{path}.accelerator_type", text


def _parameter_problems(parameter: Any, path: str) -> Iterator[Problem]:
    if parameter.conditional_parameter_specs:
        yield path, "The emulator does not support conditional_parameter_specs."
    kind = parameter.WhichOneof("parameter_value_spec")
    if kind is None:
        yield path, "One of double_, integer_, categorical_ and discrete_value_spec is required."
        return
    spec = getattr(parameter, kind)
    values = [spec.min_value, spec.max_value] if kind in _RANGES else list(spec.values)
    if not values:
        yield f"{path}.{kind}.values", "At least one value is required."
    elif kind != "categorical_value_spec":
        if not all(lower <= upper for lower, upper in pairwise(values)):
            yield f"{path}.{kind}", "The values must be in increasing order."
        if _enum_name(parameter, "scale_type") in _LOG_SCALES and not values[0] > 0:
            yield f"{path}.scale_type", "On a log scale all values must be greater than 0."


def _enum_name(message: Any, field: str) -> str:
    values = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    return str(values[getattr(message, field)].name)
