"""The sections of distlaunch.yaml ↔ a Job."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from distlaunch.job.model import (
    POOL_ROLES,
    ChoiceParameter,
    Cluster,
    Image,
    Job,
    Machine,
    Pool,
    RangeParameter,
    ReductionServer,
    Scheduling,
    Tuning,
)

if TYPE_CHECKING:
    from distlaunch.job import schema


def to_job(section: schema.JobSection) -> Job:
    """Return the job of a validated file; its ``vertex`` section is copied as it is."""
    image = section.image
    lists = {"include": tuple(image.include), "allow_secrets": tuple(image.allow_secrets)}
    converted = {
        "args": tuple(section.args),
        "bucket": section.bucket and section.bucket.rstrip("/"),
        "cluster": _to_cluster(section.cluster),
        "image": Image(**{**dict(image), **lists}),
        "scheduling": Scheduling(**dict(section.scheduling)),
        "reduction_server": section.reduction_server
        and ReductionServer(section.reduction_server.replicas),
        "tuning": section.tuning and _to_tuning(section.tuning),
    }
    return Job(**{**dict(section), **converted})


def _to_cluster(section: schema.ClusterSection) -> Cluster:
    pools = {role.field: _to_pool(getattr(section, role.field)) for role in POOL_ROLES}
    return Cluster(**cast("dict[str, Any]", pools))


def _to_pool(section: schema.ChiefSection | schema.PoolSection | None) -> Pool | None:
    if section is None:
        return None
    accelerator = section.accelerator
    chosen = (accelerator.type, accelerator.count) if accelerator else ()
    return Pool(Machine(section.machine, *chosen), getattr(section, "count", 1))


def _to_tuning(section: schema.TuningSection) -> Tuning:
    parameters = {name: _to_parameter(each) for name, each in section.parameters.items()}
    return Tuning(**{**dict(section), "parameters": parameters})


def _to_parameter(section: schema.ParameterSection) -> RangeParameter | ChoiceParameter:
    if section.values is not None:
        is_numeric = section.type == "double"
        return ChoiceParameter(tuple(section.values), is_numeric, section.scale)
    return RangeParameter(
        minimum=cast("float", section.min),  # checked by the section
        maximum=cast("float", section.max),
        is_integer=section.type == "integer",
        scale=section.scale,
    )


def to_data(job: Job) -> dict[str, Any]:
    """Return a job as the data of distlaunch.yaml, without the programs of its pools."""
    scheduling = job.scheduling
    timeout, max_wait = _duration(scheduling.timeout), _duration(scheduling.max_wait)
    server = job.reduction_server
    data = {
        **{name: getattr(job, name) for name in Job.__dataclass_fields__},
        "args": list(job.args),
        "image": {
            **_without_none(asdict(job.image)),
            "include": list(job.image.include),
            "allow_secrets": list(job.image.allow_secrets),
        },
        "cluster": _cluster_data(job.cluster),
        "scheduling": _without_none(
            {"strategy": scheduling.strategy, "timeout": timeout, "max_wait": max_wait}
        ),
        "reduction_server": server and {"replicas": server.replicas or "auto"},
        "tuning": job.tuning and _tuning_data(job.tuning),
    }
    return _without_none(data)


def _without_none(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value is not None}


def _duration(seconds: int | None) -> str | None:
    return None if seconds is None else f"{seconds}s"


def _cluster_data(cluster: Cluster) -> dict[str, Any]:
    data = {}
    for role, pool in zip(POOL_ROLES, cluster.pools, strict=True):
        if pool:
            count = {} if role.field == "chief" else {"count": pool.count}
            data[role.field] = _machine_data(pool.machine) | count
    return data


def _machine_data(machine: Machine) -> dict[str, Any]:
    if machine.accelerator is None:
        return {"machine": machine.type}
    accelerator = {"type": machine.accelerator, "count": machine.accelerator_count}
    return {"machine": machine.type, "accelerator": accelerator}


def _tuning_data(tuning: Tuning) -> dict[str, Any]:
    parameters = {name: _parameter_data(each) for name, each in tuning.parameters.items()}
    return {**asdict(tuning), "parameters": parameters}


def _parameter_data(value: RangeParameter | ChoiceParameter) -> dict[str, Any]:
    if isinstance(value, ChoiceParameter):
        numeric = {"type": "double", "scale": value.scale} if value.is_numeric else {}
        return {"values": list(value.values), **numeric}
    return {
        "type": "integer" if value.is_integer else "double",
        "min": value.minimum,
        "max": value.maximum,
        "scale": value.scale,
    }
