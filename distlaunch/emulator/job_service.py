"""Vertex AI's job service: custom jobs, tuning jobs, and persistent resources that they run on.

https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.customJobs
"""

from __future__ import annotations

import threading
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from distlaunch.emulator import persistent_resources
from distlaunch.emulator.filters import parse_filter, select_page
from distlaunch.emulator.http import ApiError, Route, read_json
from distlaunch.emulator.store import ENDED
from distlaunch.job import machine_catalogue
from distlaunch.job.persistent_resource import COLLECTION as MACHINES
from distlaunch.job.vertex.fields import DEFAULT_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from werkzeug.wrappers import Request

    from distlaunch.emulator.job_runner import JobRunner
    from distlaunch.emulator.logs import LogStore
    from distlaunch.emulator.store import Store

_MAX_PAGE_SIZE = 100
_FIELDS = ("displayName", "state", "createTime", "labels")  # by which jobs can be filtered
_OUTPUT_ONLY = (
    *("name", "state", "createTime", "startTime", "endTime", "updateTime", "error", "trials"),
    *("webAccessUris", "satisfiesPzs", "satisfiesPzi"),
)
_LOG_SCALES = ("UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE")
_RANGES = ("double_value_spec", "integer_value_spec")


class JobService:
    """Creates, lists, cancels and deletes jobs."""

    def __init__(self, store: Store, logs: LogStore, runner: JobRunner) -> None:
        self._store = store
        self._logs = logs
        self._runner = runner

    def routes(self) -> Iterator[Route]:
        """Yield the API's methods."""
        for version in ("v1", "v1beta1", "ui"):  # the last one of Google's SDK for operations
            jobs = (
                f"/{version}/projects/<project>/locations/<location>"
                f"/<any(customJobs, hyperparameterTuningJobs, {MACHINES}):collection>"
            )
            yield Route("POST", jobs, self._create)
            yield Route("GET", jobs, self._list)
            yield Route("GET", f"{jobs}/<job_id>", self._get)
            yield Route("DELETE", f"{jobs}/<job_id>", self._delete)
            yield Route("POST", f"{jobs}/<job_id>:cancel", self._cancel)
            yield Route("GET", f"{jobs}/<job_id>/operations/1", self._operation)

    def _create(self, request: Request, **path: str) -> dict[str, Any]:
        parent = _parent(**path)
        new = read_job(path["collection"], read_json(request))
        if path["collection"] == MACHINES:
            return self._create_machines(request, parent, new)
        persistent_resources.check_job(self._store, parent, new)
        job = self._store.create(parent, new)
        self._logs.add_job(job["name"].rpartition("/")[2], path["project"])
        self._runner.start(job["name"])
        return job

    def _create_machines(
        self, request: Request, parent: str, new: dict[str, Any]
    ) -> dict[str, Any]:
        names = ("persistentResourceId", "persistent_resource_id")
        resource_id = next(filter(None, map(request.args.get, names)), "")
        _require(resource_id, "persistent_resource_id", "An id is required.")
        name, store = f"{parent}/{resource_id}", self._store
        try:
            resource = store.create(parent, new, resource_id, "PROVISIONING")
        except KeyError:
            raise ApiError(409, f"The PersistentResource {name} already exists.") from None

        def start() -> None:
            store.update(name, state="RUNNING", startTime=store.now())

        timer = threading.Timer(self._runner.timings.states, start)
        timer.daemon = True
        timer.start()
        return persistent_resources.creation(resource)

    def _operation(self, request: Request, **path: str) -> dict[str, Any]:
        return persistent_resources.creation(self._get(request, **path))

    def _list(self, request: Request, **path: str) -> dict[str, Any]:
        is_listed = parse_filter(request.args.get("filter", ""), _FIELDS)
        page, rest = select_page(
            [self._view(job) for job in self._store.list(_parent(**path)) if is_listed(job)],
            "createTime",
            size=request.args.get("pageSize", 0, int),
            token=request.args.get("pageToken", ""),
            largest=_MAX_PAGE_SIZE,
        )
        return {path["collection"]: page, **rest} if page else {}

    def _get(self, _: Request, *, job_id: str, **path: str) -> dict[str, Any]:
        name = f"{_parent(**path)}/{job_id}"
        try:
            return self._view(self._store.get(name))
        except KeyError:
            raise ApiError(404, f'The resource "{name}" does not exist.') from None

    def _view(self, resource: dict[str, Any]) -> dict[str, Any]:
        if "resourcePools" not in resource:
            return resource
        return persistent_resources.with_use(self._store, resource)

    def _cancel(self, request: Request, **path: str) -> dict[str, Any]:
        job = self._get(request, **path)
        if job["state"] in ENDED:
            raise _wrong_state(job, "cannot be cancelled")
        self._runner.cancel(job["name"])
        return {}

    def _delete(self, request: Request, **path: str) -> dict[str, Any]:
        job = self._get(request, **path)
        if path["collection"] == MACHINES:
            for each in persistent_resources.jobs_on(self._store, job):
                self._runner.cancel(each["name"])
        elif job["state"] not in ENDED:
            raise _wrong_state(job, "cannot be deleted; cancel it first")
        self._store.delete(job["name"])
        operation = job["name"].replace(path["collection"], "operations")
        empty = {"@type": "type.googleapis.com/google.protobuf.Empty"}
        return {"name": operation, "done": True, "response": empty}


def _parent(*, project: str, location: str, collection: str) -> str:
    if location not in machine_catalogue.bundled().regions:
        raise ApiError(400, f"Location {location} is not supported by this service.")
    return f"projects/{project}/locations/{location}/{collection}"


def _wrong_state(job: dict[str, Any], consequence: str) -> ApiError:
    text = f'The job "{job["name"]}" is in state {job["state"]} and {consequence}.'
    return ApiError(400, text, status="FAILED_PRECONDITION")


@cache
def message_types() -> dict[str, Any]:
    """Return Google's messages by collection; the first call takes most of a second."""
    from google.cloud.aiplatform_v1 import types

    return {
        "customJobs": types.CustomJob.pb(),
        "hyperparameterTuningJobs": types.HyperparameterTuningJob.pb(),
        MACHINES: types.PersistentResource.pb(),
    }


def read_job(collection: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return a new job in Google's JSON, without the fields that only Google sets.

    `ApiError` is raised for what Google's message does not have, and for the first thing that is
    wrong with it.
    """
    from google.protobuf import json_format

    message = message_types()[collection]()
    try:
        json_format.ParseDict(data, message)
    except (json_format.ParseError, TypeError, ValueError) as problem:
        raise ApiError(400, f"Invalid JSON payload received. {problem}") from None
    if collection == MACHINES:
        _require(message.resource_pools, "resource_pools", "A resource pool is required.")
        for number, pool in enumerate(message.resource_pools):
            path = f"resource_pools[{number}]"
            _require(pool.replica_count > 0, f"{path}.replica_count", "It must be above 0.")
            _check_machine(pool.machine_spec, f"{path}.machine_spec")
    else:
        _require(message.display_name, "display_name", "Display name is required.")
    if collection == "hyperparameterTuningJobs":
        _check_study(message)
        _check_spec(message.trial_job_spec, "trial_job_spec")
    elif collection == "customJobs":
        _check_spec(message.job_spec, "job_spec")
    job: dict[str, Any] = json_format.MessageToDict(message)
    return {name: value for name, value in job.items() if name not in _OUTPUT_ONLY}


def _require(condition: object, path: str, message: str) -> None:
    if not condition:
        violation = {"field": path, "description": message}
        raise ApiError(400, f"{path}: {message}", BadRequest={"fieldViolations": [violation]})


def _check_spec(spec: Any, path: str) -> None:
    pools = [(n, pool) for n, pool in enumerate(spec.worker_pool_specs) if pool.ListFields()]
    has_first = bool(pools) and pools[0][0] == 0
    _require(has_first, f"{path}.worker_pool_specs[0]", "The first worker pool is required.")
    for number, pool in pools:
        _check_pool(pool, f"{path}.worker_pool_specs[{number}]", number)
    seconds = spec.scheduling.timeout.ToTimedelta().total_seconds()
    is_limited = _enum_name(spec.scheduling, "strategy") == "FLEX_START"
    is_valid = 0 <= seconds <= (DEFAULT_TIMEOUT if is_limited else seconds)
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
    text = f'Machine type "{name}" is not supported for custom training.'
    _require(kind, f"{path}.machine_type", text)
    assert kind is not None  # noqa: S101 - it was required
    if spec.tpu_topology or kind.topologies:
        is_known = spec.tpu_topology in kind.topologies
        text = f"Topologies of {name}: {', '.join(kind.topologies) or 'none'}."
        _require(is_known, f"{path}.tpu_topology", text)
    elif count or spec.accelerator_type or kind.needs_accelerator:
        accelerator = _enum_name(spec, "accelerator_type")
        text = f"{count} {accelerator} are not supported on machine type {name}."
        _require(kind.takes(accelerator, count), f"{path}.accelerator_type", text)


def _check_study(job: Any) -> None:
    counts = (job.max_trial_count, job.parallel_trial_count)
    _require(min(counts) > 0, "max_trial_count", "Trial counts must be greater than 0.")
    study, path = job.study_spec, "study_spec"
    _require(study.metrics, f"{path}.metrics", "At least one metric is required.")
    _require(study.parameters, f"{path}.parameters", "At least one parameter is required.")
    for number, parameter in enumerate(study.parameters):
        _check_parameter(parameter, f"{path}.parameters[{number}]")


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
