"""What Vertex AI takes for a custom job, by its documentation and not by the launcher's checks.

https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec tells most of it, the pages
on machine types, scheduling and TPUs the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.service.answers import Refused, violations
from distlaunch.emulator.service.machine_rules import (
    FLEX_START,
    LOCATIONS,
    accelerator_name,
    is_tpu,
    machine_problems,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Problem = tuple[str, str]

WEEK = 7 * 24 * 3600
_POOLS = 4
_ENV = 100
_LABELS = 64
_LABEL_LENGTH = 64
_NAME_LENGTH = 128
_PACKAGES = 100
_DISK_TYPES = ("pd-ssd", "pd-standard", "hyperdisk-balanced")
_DISK_SIZES = (100, 64_000)
_IMAGE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9.-]*(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_GCS = re.compile(r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/.*)?", re.ASCII | re.DOTALL)
_ENV_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NETWORK = re.compile(r"projects/\d+/global/networks/[a-z]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_TENSORBOARD = re.compile(r"projects/[^/]+/locations/(?P<location>[^/]+)/tensorboards/[^/]+")
_KEY = re.compile(r"projects/[^/]+/locations/(?P<location>[^/]+)/keyRings/[^/]+/cryptoKeys/[^/]+")
_ACCOUNT = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+")


def check_location(location: str) -> None:
    """See to it that a location is one of Vertex AI's.

    Raises
    ------
    Refused
        If it is not.
    """
    if location not in LOCATIONS:
        raise Refused(400, f"Location {location} is not supported by this service.")


def refusal(problems: Iterable[Problem]) -> Refused | None:
    """Return how Vertex AI tells of the problems of a job, None where there are none."""
    found = list(problems)
    listed = [
        f"{number}.Field: {path}; Message: {what}\t"
        for number, (path, what) in enumerate(found, start=1)
    ]
    return violations(found, "List of found errors:\t" + "".join(listed)) if found else None


def custom_job_problems(job: Any, location: str) -> Iterator[Problem]:
    """Tell what is wrong with a CustomJob."""
    yield from common_problems(job, location)
    if not job.HasField("job_spec"):
        yield "job_spec", "Job spec is required."
    else:
        yield from spec_problems(job.job_spec, "job_spec", location)


def common_problems(job: Any, location: str) -> Iterator[Problem]:
    """Tell what is wrong with the fields that all kinds of jobs have."""
    if not job.display_name:
        yield "display_name", "Display name is required."
    elif len(job.display_name) > _NAME_LENGTH:
        yield "display_name", f"Display name must not exceed {_NAME_LENGTH} characters."
    yield from _label_problems(job.labels)
    key = job.encryption_spec.kms_key_name
    if job.HasField("encryption_spec"):
        yield from _key_problems(key, location)


def spec_problems(spec: Any, path: str, location: str) -> Iterator[Problem]:
    """Tell what is wrong with a CustomJobSpec."""
    yield from _pools_problems(spec, path)
    yield from _scheduling_problems(spec, path)
    yield from _place_problems(spec, path, location)


def used_pools(spec: Any) -> list[tuple[int, Any]]:
    """Return the pools of a CustomJobSpec that are not skipped, with their numbers."""
    return [
        (number, pool) for number, pool in enumerate(spec.worker_pool_specs) if pool.ListFields()
    ]


def _label_problems(labels: Mapping[str, str]) -> Iterator[Problem]:
    if len(labels) > _LABELS:
        yield "labels", f"No more than {_LABELS} labels can be associated with one resource."
    for key, value in labels.items():
        if not key or not key[0].isalpha() or not _is_label(key):
            yield f"labels[{key!r}]", f"Invalid label key {key!r}. {_LABEL_RULE}"
        if not _is_label(value):
            yield f"labels[{key!r}]", f"Invalid label value {value!r}. {_LABEL_RULE}"


_LABEL_RULE = (
    f"Label keys and values can be no longer than {_LABEL_LENGTH} characters and can only contain "
    "lowercase letters, numeric characters, underscores and dashes; a key starts with a letter."
)


def _is_label(text: str) -> bool:
    fits = all(
        letter in "_-" or letter.isdecimal() or (letter.isalpha() and letter == letter.lower())
        for letter in text
    )
    return fits and len(text) <= _LABEL_LENGTH


def _key_problems(key: str, location: str) -> Iterator[Problem]:
    path = "encryption_spec.kms_key_name"
    found = _KEY.fullmatch(key)
    if found is None:
        form = "projects/my-project/locations/my-region/keyRings/my-kr/cryptoKeys/my-key"
        yield path, f"Invalid key name {key!r}; expected the form {form}."
    elif found["location"] != location:
        yield path, f"The key needs to be in the same region as the job, {location}."


def _pools_problems(spec: Any, path: str) -> Iterator[Problem]:
    pools, used = f"{path}.worker_pool_specs", used_pools(spec)
    if not spec.worker_pool_specs:
        yield pools, "At least one worker pool is required."
    elif len(spec.worker_pool_specs) > _POOLS:
        yield pools, f"No more than {_POOLS} worker pools are supported."
    elif not spec.worker_pool_specs[0].ListFields():
        yield f"{pools}[0]", "The first worker pool must not be empty."
    for number, pool in used:
        yield from _pool_problems(pool, f"{pools}[{number}]", is_first=number == 0)
    if any(is_tpu(pool.machine_spec) for _, pool in used) and (
        len(used) > 1 or used[0][1].replica_count > 1
    ):
        yield pools, "A job on TPUs has exactly one worker pool with one replica."


def _pool_problems(pool: Any, path: str, *, is_first: bool) -> Iterator[Problem]:
    if is_first and pool.replica_count != 1:
        yield f"{path}.replica_count", "The replica count of the first worker pool must be 1."
    elif pool.replica_count < 1:
        yield f"{path}.replica_count", "Replica count must be greater than 0."
    yield from machine_problems(pool.machine_spec, f"{path}.machine_spec")
    yield from _disk_problems(pool, f"{path}.disk_spec")
    task = pool.WhichOneof("task")
    if task == "container_spec":
        yield from _container_problems(pool.container_spec, f"{path}.container_spec")
    elif task == "python_package_spec":
        yield from _package_problems(pool.python_package_spec, f"{path}.python_package_spec")
    else:
        yield path, "One of container_spec and python_package_spec is required."


def _disk_problems(pool: Any, path: str) -> Iterator[Problem]:
    kind, size = pool.disk_spec.boot_disk_type, pool.disk_spec.boot_disk_size_gb
    lowest, highest = _DISK_SIZES
    if kind and kind not in _DISK_TYPES:
        known = ", ".join(_DISK_TYPES)
        yield f"{path}.boot_disk_type", f'Disk type "{kind}" is not supported; supported: {known}.'
    if size and not lowest <= size <= highest:
        text = f"Boot disk size must be between {lowest} and {highest} GB."
        yield f"{path}.boot_disk_size_gb", text


def _container_problems(spec: Any, path: str) -> Iterator[Problem]:
    yield from _image_problems(spec.image_uri, f"{path}.image_uri")
    yield from _env_problems(spec.env, path)


def _package_problems(spec: Any, path: str) -> Iterator[Problem]:
    yield from _image_problems(spec.executor_image_uri, f"{path}.executor_image_uri")
    if not spec.python_module:
        yield f"{path}.python_module", "Python module is required."
    if not 1 <= len(spec.package_uris) <= _PACKAGES:
        yield f"{path}.package_uris", f"Between 1 and {_PACKAGES} package URIs are required."
    for index, uri in enumerate(spec.package_uris):
        if not _GCS.fullmatch(uri):
            text = f'"{uri}" is not a Cloud Storage URI (gs://…).'
            yield f"{path}.package_uris[{index}]", text
    yield from _env_problems(spec.env, path)


def _image_problems(uri: str, path: str) -> Iterator[Problem]:
    if not uri:
        yield path, "Image URI is required."
    elif not _IMAGE.fullmatch(uri):
        yield path, f'Invalid image URI "{uri}".'


def _env_problems(env: Any, path: str) -> Iterator[Problem]:
    if len(env) > _ENV:
        yield f"{path}.env", f"No more than {_ENV} environment variables can be specified."
    for index, each in enumerate(env):
        if not _ENV_NAME.fullmatch(each.name):
            text = f'"{each.name}" is not a valid C identifier.'
            yield f"{path}.env[{index}].name", text


def _scheduling_problems(spec: Any, path: str) -> Iterator[Problem]:
    scheduling, path = spec.scheduling, f"{path}.scheduling"
    for name in ("timeout", "max_wait_duration"):
        seconds = getattr(scheduling, name).ToTimedelta().total_seconds()
        if seconds < 0:
            yield f"{path}.{name}", "The duration must not be negative."
    timeout = scheduling.timeout.ToTimedelta().total_seconds()
    if timeout > WEEK:
        yield f"{path}.timeout", f"The timeout must not exceed 7 days ({WEEK}s)."
    strategies = scheduling.DESCRIPTOR.fields_by_name["strategy"].enum_type.values_by_name
    if scheduling.strategy == strategies["FLEX_START"].number:
        yield from _flex_start_problems(spec, f"{path}.strategy")


def _flex_start_problems(spec: Any, path: str) -> Iterator[Problem]:
    machines = [pool.machine_spec for _, pool in used_pools(spec)]
    if any(accelerator_name(machine) not in FLEX_START for machine in machines):
        yield path, f"FLEX_START supports these accelerators only: {', '.join(FLEX_START)}."
    if any(machine != machines[0] for machine in machines):
        yield path, "FLEX_START requires the same machine spec in all worker pools."


def _place_problems(spec: Any, path: str, location: str) -> Iterator[Problem]:
    directory = spec.base_output_directory.output_uri_prefix
    if spec.HasField("base_output_directory") and not _GCS.fullmatch(directory):
        text = f'"{directory}" is not a Cloud Storage URI (gs://…).'
        yield f"{path}.base_output_directory.output_uri_prefix", text
    if spec.service_account and not _ACCOUNT.fullmatch(spec.service_account):
        text = f'Invalid service account "{spec.service_account}"; an email address is expected.'
        yield f"{path}.service_account", text
    if spec.network and not _NETWORK.fullmatch(spec.network):
        form = "projects/{project number}/global/networks/{network}"
        yield f"{path}.network", f'Invalid network "{spec.network}"; expected the form {form}.'
    if spec.tensorboard:
        yield from _tensorboard_problems(spec, path, location)


def _tensorboard_problems(spec: Any, path: str, location: str) -> Iterator[Problem]:
    found = _TENSORBOARD.fullmatch(spec.tensorboard)
    if found is None:
        form = "projects/{project}/locations/{location}/tensorboards/{tensorboard}"
        text = f'Invalid tensorboard "{spec.tensorboard}"; expected the form {form}.'
        yield f"{path}.tensorboard", text
    elif found["location"] != location:
        yield f"{path}.tensorboard", f"The tensorboard must be in the job's location, {location}."
    if not spec.service_account:
        yield f"{path}.service_account", "A service account is required where tensorboard is set."
