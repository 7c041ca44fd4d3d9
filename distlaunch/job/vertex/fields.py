"""The fields of Google's jobs, as fields of a Job.

All functions take plain data in Google's JSON names.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from distlaunch.job.model import Machine, Pool, Program, ReductionServer, Strategy
from distlaunch.job.names import job_name
from distlaunch.job.reduction_server import POOL, is_image

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from distlaunch.job.yaml_document import Path as FieldPath

Collection = Literal["customJobs", "hyperparameterTuningJobs"]

SPECS: dict[Collection, str] = {
    "customJobs": "jobSpec",
    "hyperparameterTuningJobs": "trialJobSpec",
}
"""The field of a job with its CustomJobSpec."""

PLAIN_FIELDS = {
    "service_account": "serviceAccount",
    "network": "network",
    "tensorboard": "tensorboard",
    "experiment": "experiment",
    "experiment_run": "experimentRun",
    "persistent_resource": "persistentResourceId",
    "web_access": "enableWebAccess",
}
"""Fields of a Job that are copied as they are, and their names in a CustomJobSpec."""

SCHEDULING_FIELDS = {"timeout": "timeout", "max_wait": "maxWaitDuration"}
"""The durations of a `Scheduling`, and their names in a CustomJobSpec's scheduling."""

PROGRAM_FIELDS = {
    "containerSpec": {"imageUri": "image", "command": "command", "args": "args"},
    "pythonPackageSpec": {
        "executorImageUri": "image",
        "packageUris": "packages",
        "pythonModule": "module",
        "args": "args",
    },
}
"""The fields of a worker pool that define a `Program`, and its attributes by their fields."""

TUNED = frozenset(
    {"studySpec", "trialJobSpec", "maxTrialCount", "parallelTrialCount", "maxFailedTrialCount"}
)
"""The fields that only a HyperparameterTuningJob has."""

DEFAULT_TIMEOUT = 7 * 24 * 3600
"""Seconds of scheduling.timeout; FLEX_START allows no more."""

_FORMER_STRATEGIES: dict[str, Strategy] = {
    "STRATEGY_UNSPECIFIED": "STANDARD",
    "ON_DEMAND": "STANDARD",
    "LOW_COST": "SPOT",
}


def json_name(name: str) -> str:
    """Return a field's name in camelCase, for either spelling."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def leaves(value: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Any]]:
    """Yield each value with its path; a list is one value, except the worker pools."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and path[-1:] == ("workerPoolSpecs",):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    elif path and value not in ({}, []):
        yield path, value


def job_spec(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the CustomJobSpec of a job or of a tuning job's trials, an empty one without it."""
    spec: dict[str, Any] = body.get("jobSpec") or body.get("trialJobSpec") or {}
    return spec


def name(body: Mapping[str, Any]) -> str | None:
    """Return the job name of a display name, None without one."""
    display_name = body.get("displayName")
    return job_name(display_name) if display_name else None


def pool(spec: Mapping[str, Any]) -> Pool | None:
    """Return a worker pool, None for one without machines."""
    if not spec or spec.get("replicaCount") == 0:
        return None
    return Pool(machine(spec), spec.get("replicaCount", 1), program(spec))


def reduction_server(specs: Sequence[Mapping[str, Any]]) -> ReductionServer | None:
    """Return the Reduction Server among a job's worker pools, None without one."""
    spec = specs[POOL] if len(specs) > POOL else {}
    if not is_reduction_server(spec) or spec.get("replicaCount") == 0:
        return None
    return ReductionServer(int(spec.get("replicaCount", 1)))


def is_reduction_server(spec: Mapping[str, Any]) -> bool:
    """Return whether a worker pool runs Google's Reduction Server."""
    return is_image((spec.get("containerSpec") or {}).get("imageUri"))


def machine(spec: Mapping[str, Any]) -> Machine:
    """Return a pool's machine."""
    machine_spec = spec.get("machineSpec", {})
    accelerator = machine_spec.get("acceleratorType", "ACCELERATOR_TYPE_UNSPECIFIED")
    return Machine(
        machine_spec.get("machineType", ""),
        None if accelerator == "ACCELERATOR_TYPE_UNSPECIFIED" else accelerator,
        machine_spec.get("acceleratorCount", 0),
    )


def program(spec: Mapping[str, Any]) -> Program | None:
    """Return what a pool runs, None if it does not define it."""
    name = "pythonPackageSpec" if "pythonPackageSpec" in spec else "containerSpec"
    section = spec.get(name, {})
    values: dict[str, Any] = {"module": ""} if name == "pythonPackageSpec" else {}
    if not values and not any(section.values()):
        return None
    for field, attribute in PROGRAM_FIELDS[name].items():
        value = section.get(field)
        if value:
            values[attribute] = tuple(value) if isinstance(value, list) else value
    return Program(**values, env=env(section))


def program_field(program: Program) -> str:
    """Return the field of a pool that defines such a program."""
    return "containerSpec" if program.module is None else "pythonPackageSpec"


def env(program_spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of a pool's program."""
    return {each.get("name", ""): each.get("value", "") for each in program_spec.get("env", [])}


def strategy(scheduling: Mapping[str, Any]) -> Strategy:
    """Return the strategy of a job."""
    strategy: Strategy = scheduling.get("strategy", "STANDARD")
    return _FORMER_STRATEGIES.get(strategy, strategy)


def seconds(section: Mapping[str, Any], field: str) -> int | None:
    """Return a duration in whole seconds, rounded up; None without one."""
    return math.ceil(float(section[field].removesuffix("s"))) if field in section else None
