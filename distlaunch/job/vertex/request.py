"""A Job → the request that creates it at Vertex AI, in Google's JSON names.

A job read from one of Google's files carries that file (`Job.vertex`). A field of the job replaces
the file's only where they differ, so that a file is written as it was read.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from distlaunch.job import reduction_server
from distlaunch.job.tf_config import EXPECTED_GPUS
from distlaunch.job.vertex import fields
from distlaunch.job.vertex.fields import PLAIN_FIELDS, PROGRAM_FIELDS, SPECS
from distlaunch.job.vertex.tuning import read_tuning, write_tuning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.model import Job, Machine, Pool, Program, Scheduling
    from distlaunch.job.vertex.fields import Collection


def collection(job: Job) -> Collection:
    """Return the collection of Vertex AI that such a job belongs to."""
    return "hyperparameterTuningJobs" if is_tuned(job) else "customJobs"


def is_tuned(job: Job) -> bool:
    """Return whether it is a HyperparameterTuningJob, even one that `Tuning` cannot express."""
    return job.tuning is not None or not fields.TUNED.isdisjoint(job.vertex)


def needs_image(job: Job) -> bool:
    """Return whether some pool runs the job's image, and no existing image is given."""
    if job.image.uri is not None:
        return False
    live = [pool for pool in job.cluster.pools if pool and pool.count]
    return any(pool.program is None or pool.program.image is None for pool in live)


def output_directory(job: Job) -> str | None:
    """Return the ``gs://…`` baseOutputDirectory of the job's file, None without one."""
    spec = job.vertex.get(SPECS[collection(job)], {})
    folder = spec.get("baseOutputDirectory", {}).get("outputUriPrefix")
    return str(folder).rstrip("/") if folder else None


def build_request(
    job: Job, *, image: str | None, labels: Mapping[str, str], job_dir: str | None
) -> dict[str, Any]:
    """Return the body of the call that creates the job, with `EXPECTED_GPUS` for each GPU pool.

    Parameters
    ----------
    image
        The image of the pools without one; None for the job's `Image.uri`, or none at all.
    labels
        Additional labels, which win over the job's.
    job_dir
        The ``gs://…`` job folder, None for the one of the job's file.
    """
    body = plain_request(job, image=image, labels=labels, job_dir=job_dir)
    for spec in body[SPECS[collection(job)]]["workerPoolSpecs"]:
        _set_expected_gpus(spec)
    return body


def plain_request(
    job: Job, *, image: str | None, labels: Mapping[str, str], job_dir: str | None
) -> dict[str, Any]:
    """Return what `build_request` does, without the variables that distlaunch adds."""
    body = as_body_of(collection(job), job.vertex)
    key = SPECS[collection(job)]
    if fields.name(body) != job.name:
        body = {"displayName": job.name} | body | {"displayName": job.name}
    if job.tuning and read_tuning(body) != job.tuning:
        write_tuning(job.tuning, body)
    all_labels = {**body.get("labels", {}), **job.labels, **labels}
    if all_labels:
        body["labels"] = all_labels
    spec = body.setdefault(key, {})
    spec["workerPoolSpecs"] = _pools(job, spec.get("workerPoolSpecs", []), image or job.image.uri)
    _set_scheduling(spec, job.scheduling)
    for name, json_name in PLAIN_FIELDS.items():
        _set(spec, json_name, getattr(job, name))
    if job_dir:
        spec.setdefault("baseOutputDirectory", {})["outputUriPrefix"] = job_dir
    return body


def as_body_of(target: Collection, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a job's body with its CustomJobSpec in the field of a collection."""
    return {
        SPECS[target] if key in SPECS.values() else key: deepcopy(value)
        for key, value in body.items()
    }


def _pools(job: Job, specs: list[dict[str, Any]], image: str | None) -> list[dict[str, Any]]:
    """Return all worker pools; one without machines is empty."""
    live = [index for index, pool in enumerate(job.cluster.pools) if pool and pool.count]
    count = max(len(specs), live[-1] + 1 if live else 0)
    padded = [*specs, *({} for _ in range(count - len(specs)))]
    pools = [*job.cluster.pools, *[None] * count]
    written = [_pool(job, pool, spec, image) for pool, spec in zip(pools, padded, strict=False)]
    return _with_reduction_server(job, written)


def _with_reduction_server(job: Job, specs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pools with that of the job's Reduction Server, or without one."""
    before = fields.reduction_server(specs)
    if job.reduction_server is None and before is None:
        return specs
    first = [*specs, {}, {}, {}][: reduction_server.POOL]
    spec, *others = specs[reduction_server.POOL :] or [{}]
    if job.reduction_server is None:
        return [*first, {}, *others]
    count = reduction_server.replica_count(job)
    if before is None:
        machine = spec.setdefault("machineSpec", {})
        machine.setdefault("machineType", reduction_server.MACHINE)
    if spec.get("replicaCount") != count:
        spec["replicaCount"] = count
    if before is None:
        spec["containerSpec"] = {"imageUri": reduction_server.image(job.region)}
    return [*first, spec, *others]


def _pool(job: Job, pool: Pool | None, spec: dict[str, Any], image: str | None) -> dict[str, Any]:
    if pool is None:
        return spec
    if not pool.count:
        return {}
    _set_machine(spec, pool.machine)
    if spec.get("replicaCount") != pool.count:
        spec["replicaCount"] = pool.count
    if pool.program is None:
        container = {"imageUri": image, "args": list(job.args)}
        _set_program(spec, "containerSpec", container, dict(job.env))
    else:
        env = {**job.env, **pool.program.env}
        values = _program_values(pool.program, image)
        _set_program(spec, fields.program_field(pool.program), values, env)
    return spec


def _program_values(program: Program, image: str | None) -> dict[str, Any]:
    args = list(program.args)
    if program.module is None:
        return {
            "imageUri": program.image or image,
            "command": list(program.command),
            "args": args,
        }
    return {
        "executorImageUri": program.image or image,
        "packageUris": list(program.packages),
        "pythonModule": program.module,
        "args": args,
    }


def _set_machine(spec: dict[str, Any], machine: Machine) -> None:
    if fields.machine(spec) == machine:
        return
    machine_spec = spec.setdefault("machineSpec", {})
    _set(machine_spec, "machineType", machine.type)
    for name in ("acceleratorType", "acceleratorCount"):
        machine_spec.pop(name, None)
    _set(machine_spec, "acceleratorType", machine.accelerator)
    _set(machine_spec, "acceleratorCount", machine.accelerator_count)


def _set_program(
    spec: dict[str, Any], field: str, values: Mapping[str, Any], env: dict[str, str]
) -> None:
    for other in PROGRAM_FIELDS:
        if other != field:
            spec.pop(other, None)
    program = spec.get(field, {})
    for name, value in values.items():
        _set(program, name, value)
    if env and fields.env(program) != env:
        program["env"] = _merge_env(program.get("env", []), env)
    if program:
        spec[field] = program


def _set_expected_gpus(spec: dict[str, Any]) -> None:
    """Set the number of GPUs of a pool's machine as a variable of its program."""
    program, gpus = fields.program(spec), fields.machine(spec).gpu_count
    if program is None:
        return
    program_spec = spec[fields.program_field(program)]
    entries = program_spec.get("env", [])
    if gpus:
        program_spec["env"] = _merge_env(entries, {EXPECTED_GPUS: str(gpus)})
    elif EXPECTED_GPUS in program.env:
        program_spec["env"] = [each for each in entries if each.get("name") != EXPECTED_GPUS]


def _merge_env(entries: list[dict[str, Any]], env: dict[str, str]) -> list[dict[str, Any]]:
    """Return the entries with the values of `env`, and new ones after them."""
    present = {each.get("name", "") for each in entries}
    merged = [
        each | {"value": env[each["name"]]} if each.get("name") in env else each for each in entries
    ]
    new = [{"name": name, "value": value} for name, value in env.items() if name not in present]
    return merged + new


def _set_scheduling(spec: dict[str, Any], scheduling: Scheduling) -> None:
    section = spec.get("scheduling", {})
    if fields.strategy(section) != scheduling.strategy:
        section["strategy"] = scheduling.strategy
    for field, seconds in (
        ("timeout", scheduling.timeout),
        ("maxWaitDuration", scheduling.max_wait),
    ):
        if seconds is not None and fields.seconds(section, field) != seconds:
            section[field] = f"{seconds}s"
    if section:
        spec["scheduling"] = section


def _set(section: dict[str, Any], field: str, value: Any) -> None:
    """Set a value if there is one, and if it differs."""
    if value and section.get(field) != value:
        section[field] = value
