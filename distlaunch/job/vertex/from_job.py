"""A Job → the request that creates it at Vertex AI, in Google's JSON names.

A job read from one of Google's files carries that file (`Job.vertex`). A field of the job replaces
the file's only where they differ, so that a file is written as it was read.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from distlaunch.job import reduction_server, reservation
from distlaunch.job.model import STOP_IF, Program
from distlaunch.job.tf_config import EXPECTED_GPUS
from distlaunch.job.vertex import fields
from distlaunch.job.vertex.fields import PLAIN_FIELDS, PROGRAM_FIELDS, SCHEDULING_FIELDS, SPECS
from distlaunch.job.vertex.tuning import read_tuning, write_tuning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.model import Job, Machine, Pool, Scheduling
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

    `image` is that of the pools without one, None for the job's `Image.uri`. `labels` win over the
    job's. `job_dir` is the ``gs://…`` job folder, None for the one of the job's file.
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
    if spec.get("enableWebAccess") and not job.web_access:
        spec["enableWebAccess"] = False
    if not job.persistent_resource:  # as with --set persistent_resource=
        spec.pop("persistentResourceId", None)
    _set_experiment(spec, job)
    if job_dir:
        spec.setdefault("baseOutputDirectory", {})["outputUriPrefix"] = job_dir
    return body


def _set_experiment(spec: dict[str, Any], job: Job) -> None:
    """Set the resource names of an experiment and its run that are given by their names.

    Those of Vertex Experiments are contexts of the project's default metadata store, a run's after
    its experiment (``experiment`` and ``experiment_run`` of the reference of CustomJobSpec).
    """
    experiment, run = job.experiment or "", job.experiment_run
    if experiment and "/" not in experiment and job.project and job.region:
        store = f"projects/{job.project}/locations/{job.region}/metadataStores/default"
        experiment = spec["experiment"] = f"{store}/contexts/{experiment}"
    if run and "/" not in run and "/" in experiment:
        spec["experimentRun"] = f"{experiment}-{run}"


def as_body_of(target: Collection, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a job's body with its CustomJobSpec in the field of a collection."""
    return {
        SPECS[target] if key in SPECS.values() else key: deepcopy(value)
        for key, value in body.items()
    }


def _pools(job: Job, specs: list[dict[str, Any]], image: str | None) -> list[dict[str, Any]]:
    """Return all worker pools; one without machines is empty."""
    pools = list(job.cluster.pools)
    while pools and not (pools[-1] and pools[-1].count):
        pools.pop()
    pairs = zip_longest(pools, specs)
    written = [_pool(job, pool, {} if spec is None else spec, image) for pool, spec in pairs]
    _set_reduction_server(job, written)
    if job.reservation:
        reservation.write(written, job.reservation, job.project)
    return written


def _set_reduction_server(job: Job, specs: list[dict[str, Any]]) -> None:
    """Set or remove the pool of the job's Reduction Server."""
    index, is_set = reduction_server.POOL, fields.reduction_server(specs) is not None
    if job.reduction_server is None:
        if is_set:
            specs[index] = {}
        return
    specs += [{} for _ in range(index + 1 - len(specs))]
    if not is_set:
        machine = specs[index].setdefault("machineSpec", {})
        machine.setdefault("machineType", reduction_server.MACHINE)
        specs[index]["containerSpec"] = {"imageUri": reduction_server.image(job.region)}
    specs[index]["replicaCount"] = reduction_server.replica_count(job)


def _pool(job: Job, pool: Pool | None, spec: dict[str, Any], image: str | None) -> dict[str, Any]:
    if pool is None:
        return spec
    if not pool.count:
        return {}
    _set_machine(spec, pool.machine)
    spec["replicaCount"] = pool.count
    program = pool.program or Program(args=job.args)
    field = fields.program_field(program)
    for other in PROGRAM_FIELDS.keys() - {field}:
        spec.pop(other, None)
    section = spec.get(field, {})
    program = replace(program, image=program.image or image)
    for name, attribute in PROGRAM_FIELDS[field].items():
        value = getattr(program, attribute)
        _set(section, name, list(value) if isinstance(value, tuple) else value)
    own = {name: value for name, value in program.env.items() if name != STOP_IF}
    env = {**job.task_env, **own}
    if fields.env(section) != env:
        entries = [each for each in section.get("env", []) if each.get("name") != STOP_IF]
        section["env"] = _merge_env(entries, env)
    if section:
        spec[field] = section
    return spec


def _set_machine(spec: dict[str, Any], machine: Machine) -> None:
    if fields.machine(spec) == machine:
        return
    machine_spec = spec.setdefault("machineSpec", {})
    for name in ("acceleratorType", "acceleratorCount"):
        machine_spec.pop(name, None)
    _set(machine_spec, "machineType", machine.type)
    _set(machine_spec, "acceleratorType", machine.accelerator)
    _set(machine_spec, "acceleratorCount", machine.accelerator_count)


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
    if scheduling.may_move and scheduling.strategy != "FLEX_START":
        scheduling = replace(scheduling, max_wait=None)  # after it, the job moves
    for name, json_name in SCHEDULING_FIELDS.items():
        seconds = getattr(scheduling, name)
        if seconds is not None and fields.seconds(section, json_name) != seconds:
            section[json_name] = f"{seconds}s"
    if section:
        spec["scheduling"] = section


def _set(section: dict[str, Any], field: str, value: Any) -> None:
    """Set a value if there is one."""
    if value:
        section[field] = value
