"""The sections of distlaunch.yaml ↔ a job."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from distlaunch.job.model import (
    Choice,
    Cluster,
    Image,
    Job,
    Machine,
    Pool,
    ReductionServer,
    Scheduling,
    Span,
    Tuning,
)

if TYPE_CHECKING:
    from distlaunch.job import schema


def to_job(section: schema.JobSection) -> Job:
    """Return the job that a file's sections say; what is under ``vertex`` comes as it is there."""
    return Job(
        name=section.name,
        cluster=_cluster(section.cluster),
        module=section.module,
        args=tuple(section.args),
        env=section.env,
        project=section.project,
        region=section.region,
        bucket=section.bucket and section.bucket.rstrip("/"),
        image=_image(section.image),
        scheduling=Scheduling(**dict(section.scheduling)),
        labels=section.labels,
        service_account=section.service_account,
        network=section.network,
        tensorboard=section.tensorboard,
        reduction_server=_reduction_server(section.reduction_server),
        tuning=_tuning(section.tuning) if section.tuning else None,
        vertex=section.vertex,
    )


def _image(section: schema.ImageSection) -> Image:
    lists = {"include": tuple(section.include), "allow_secrets": tuple(section.allow_secrets)}
    return Image(**{**dict(section), **lists})


def _cluster(section: schema.ClusterSection) -> Cluster:
    return Cluster(
        chief=Pool(_machine(section.chief)),
        workers=_pool(section.workers),
        parameter_servers=_pool(section.parameter_servers),
        evaluators=_pool(section.evaluators),
    )


def _pool(section: schema.PoolSection | None) -> Pool | None:
    return Pool(_machine(section), section.count) if section else None


def _machine(section: schema.ChiefSection) -> Machine:
    accelerator = section.accelerator
    if accelerator is None:
        return Machine(section.machine)
    return Machine(section.machine, accelerator.type, accelerator.count)


def _reduction_server(section: schema.ReductionServerSection | None) -> ReductionServer | None:
    return ReductionServer(section.replicas) if section else None


def _tuning(section: schema.TuningSection) -> Tuning:
    return Tuning(
        metric=section.metric,
        goal=section.goal,
        parameters={name: _parameter(each) for name, each in section.parameters.items()},
        trials=section.trials,
        parallel_trials=section.parallel_trials,
        algorithm=section.algorithm,
    )


def _parameter(section: schema.ParameterSection) -> Span | Choice:
    if section.values is not None:
        is_numeric = section.type == "double"
        return Choice(tuple(section.values), numeric=is_numeric, scale=section.scale)
    return Span(
        minimum=cast("float", section.min),  # the section has seen to it that both are there
        maximum=cast("float", section.max),
        whole=section.type == "integer",
        scale=section.scale,
    )


def to_data(job: Job) -> dict[str, Any]:
    """Return what distlaunch.yaml would say of a job, as plain data; programs have no place there.

    Reading it again gives the job, but for its programs.
    """
    scheduling = job.scheduling
    data = {
        "name": job.name,
        "project": job.project,
        "region": job.region,
        "bucket": job.bucket,
        "module": job.module,
        "args": list(job.args),
        "image": {
            **_said(asdict(job.image)),
            "include": list(job.image.include),
            "allow_secrets": list(job.image.allow_secrets),
        },
        "cluster": _cluster_data(job.cluster),
        "scheduling": {
            "strategy": scheduling.strategy,
            **_said({"timeout": _text(scheduling.timeout), "max_wait": _text(scheduling.max_wait)}),
        },
        "env": dict(job.env),
        "labels": dict(job.labels),
        "service_account": job.service_account,
        "network": job.network,
        "tensorboard": job.tensorboard,
        "reduction_server": job.reduction_server
        and {"replicas": job.reduction_server.replicas or "auto"},
        "tuning": job.tuning and _tuning_data(job.tuning),
        "vertex": dict(job.vertex),
    }
    return _said(data)


def _said(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value is not None}


def _text(seconds: int | None) -> str | None:
    return None if seconds is None else f"{seconds}s"


def _cluster_data(cluster: Cluster) -> dict[str, Any]:
    pools = {
        "workers": cluster.workers,
        "parameter_servers": cluster.parameter_servers,
        "evaluators": cluster.evaluators,
    }
    return {"chief": _machine_data(cluster.chief.machine)} | {
        name: _machine_data(pool.machine) | {"count": pool.count}
        for name, pool in pools.items()
        if pool
    }


def _machine_data(machine: Machine) -> dict[str, Any]:
    if machine.accelerator is None:
        return {"machine": machine.type}
    accelerator = {"type": machine.accelerator, "count": machine.accelerator_count}
    return {"machine": machine.type, "accelerator": accelerator}


def _tuning_data(tuning: Tuning) -> dict[str, Any]:
    parameters = {name: _parameter_data(each) for name, each in tuning.parameters.items()}
    return {**asdict(tuning), "parameters": parameters}


def _parameter_data(value: Span | Choice) -> dict[str, Any]:
    if isinstance(value, Choice):
        numeric = {"type": "double", "scale": value.scale} if value.numeric else {}
        return {"values": list(value.values), **numeric}
    return {
        "type": "integer" if value.whole else "double",
        "min": value.minimum,
        "max": value.maximum,
        "scale": value.scale,
    }
