"""Job → the request that Vertex AI takes, in Google's JSON names. Pure: nothing is asked or sent.

A job read from one of Google's files carries that file along (`Job.vertex`). What the job says is
laid over it only where the file says something else, so that a file comes out as it went in.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal

from distlaunch.job import reduction_server
from distlaunch.job.tf_config import EXPECTED_GPUS
from distlaunch.job.vertex import reading
from distlaunch.job.vertex.tuning import read_tuning, write_tuning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.model import Job, Machine, Pool, Program, Scheduling

Collection = Literal["customJobs", "hyperparameterTuningJobs"]

SPECS: dict[Collection, str] = {
    "customJobs": "jobSpec",
    "hyperparameterTuningJobs": "trialJobSpec",
}


def collection(job: Job) -> Collection:
    """Return where Vertex AI keeps such a job: with its tuned ones, or with all others."""
    return "hyperparameterTuningJobs" if is_tuned(job) else "customJobs"


def is_tuned(job: Job) -> bool:
    """Return whether it is a HyperparameterTuningJob, even one that `Tuning` cannot express."""
    return job.tuning is not None or not reading.TUNED.isdisjoint(job.vertex)


def needs_image(job: Job) -> bool:
    """Whether some pool runs the job's own image, and none is named that is there already."""
    if job.image.uri is not None:
        return False
    return any(pool.program is None or pool.program.image is None for pool in _live(job))


def output_directory(job: Job) -> str | None:
    """Return the ``gs://…`` folder that the job's own file names for its output, if any."""
    spec = job.vertex.get(SPECS[collection(job)], {})
    folder = spec.get("baseOutputDirectory", {}).get("outputUriPrefix")
    return str(folder).rstrip("/") if folder else None


def request(
    job: Job, *, image: str | None, labels: Mapping[str, str], job_dir: str | None
) -> dict[str, Any]:
    """Return the body of the call that makes the job.

    Each pool with GPUs has their number in the variable `EXPECTED_GPUS`.

    Parameters
    ----------
    job
        The job.
    image
        What the pools run that run the job's own image; where it is None, the image that the job
        names, or none at all.
    labels
        More labels, which win over the job's.
    job_dir
        The ``gs://…`` folder for the job's output, None for what the job's file says.
    """
    body = plain_request(job, image=image, labels=labels, job_dir=job_dir)
    for spec in body[SPECS[collection(job)]]["workerPoolSpecs"]:
        _expect_gpus(spec)
    return body


def plain_request(
    job: Job, *, image: str | None, labels: Mapping[str, str], job_dir: str | None
) -> dict[str, Any]:
    """Return what `request` does, without the variables that distlaunch adds by itself."""
    body = as_body_of(collection(job), job.vertex)
    key = SPECS[collection(job)]
    if reading.name(body) != job.name:
        body = {"displayName": job.name} | body | {"displayName": job.name}
    if job.tuning and read_tuning(body) != job.tuning:
        write_tuning(job.tuning, body)
    all_labels = {**body.get("labels", {}), **job.labels, **labels}
    if all_labels:
        body["labels"] = all_labels
    spec = body.setdefault(key, {})
    spec["workerPoolSpecs"] = _pools(job, spec.get("workerPoolSpecs", []), image or job.image.uri)
    _lay_scheduling(spec, job.scheduling)
    for field, value in _plain_fields(job).items():
        _lay(spec, field, value)
    if job_dir:
        spec.setdefault("baseOutputDirectory", {})["outputUriPrefix"] = job_dir
    return body


def as_body_of(where: Collection, bag: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a job's own body, with its spec where such a job has it."""
    other = SPECS[
        "customJobs" if where == "hyperparameterTuningJobs" else "hyperparameterTuningJobs"
    ]
    return {SPECS[where] if key == other else key: deepcopy(bag[key]) for key in bag}


def _live(job: Job) -> list[Pool]:
    return [pool for pool in _in_order(job) if pool and pool.count]


def _in_order(job: Job) -> list[Pool | None]:
    """Return the pools in the order in which Google knows them."""
    cluster = job.cluster
    return [cluster.chief, cluster.workers, cluster.parameter_servers, cluster.evaluators]


def _pools(job: Job, specs: list[dict[str, Any]], image: str | None) -> list[dict[str, Any]]:
    """Return all pools; one that is skipped is empty."""
    in_order = _in_order(job)
    live = [index for index, pool in enumerate(in_order) if pool and pool.count]
    count = max(len(specs), live[-1] + 1 if live else 0)
    padded = [*specs, *({} for _ in range(count - len(specs)))]
    pools = [*in_order, *[None] * count]
    written = [_pool(job, pool, spec, image) for pool, spec in zip(pools, padded, strict=False)]
    return _with_reduction_server(job, written)


def _with_reduction_server(job: Job, specs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pools with that of the job's Reduction Server, or without one."""
    before = reading.reduction_server(specs)
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
    _lay_machine(spec, pool.machine)
    if spec.get("replicaCount") != pool.count:
        spec["replicaCount"] = pool.count
    if pool.program is None:
        _lay_program(spec, "containerSpec", _of_job(job, image))
    else:
        _lay_program(spec, reading.task_of(pool.program), _of_pool(job, pool.program, image))
    return spec


def _lay_machine(spec: dict[str, Any], machine: Machine) -> None:
    if reading.machine(spec) == machine:
        return
    there = spec.setdefault("machineSpec", {})
    _lay(there, "machineType", machine.type)
    for field, value in (
        ("acceleratorType", machine.accelerator),
        ("acceleratorCount", machine.accelerator_count),
    ):
        there.pop(field, None)
        _lay(there, field, value)


def _of_job(job: Job, image: str | None) -> dict[str, Any]:
    """Return what a pool runs that has no program of its own."""
    return {"imageUri": image, "args": list(job.args), "env": dict(job.env)}


def _of_pool(job: Job, program: Program, image: str | None) -> dict[str, Any]:
    fields = {
        "args": list(program.args),
        "env": {**job.env, **program.env},
    }
    if program.module is None:
        return {
            "imageUri": program.image or image,
            "command": list(program.command),
            **fields,
        }
    return {
        "executorImageUri": program.image or image,
        "packageUris": list(program.packages),
        "pythonModule": program.module,
        **fields,
    }


def _lay_program(spec: dict[str, Any], task: str, said: dict[str, Any]) -> None:
    for other in reading.TASKS:
        if other != task:
            spec.pop(other, None)
    there = spec.get(task, {})
    env = said.pop("env")
    for field, value in said.items():
        _lay(there, field, value)
    if env and reading.env(there) != env:
        there["env"] = _merged_env(there.get("env", []), env)
    if there:
        spec[task] = there


def _expect_gpus(spec: dict[str, Any]) -> None:
    """Set the number of GPUs of a pool's machine as a variable of its program, if it has any."""
    program, gpus = reading.program(spec), reading.machine(spec).gpu_count
    if program is None:
        return
    task = spec[reading.task_of(program)]
    if gpus:
        task["env"] = _merged_env(task.get("env", []), {EXPECTED_GPUS: str(gpus)})
    elif EXPECTED_GPUS in program.env:
        task["env"] = [each for each in task["env"] if each.get("name") != EXPECTED_GPUS]


def _merged_env(entries: list[dict[str, Any]], env: dict[str, str]) -> list[dict[str, Any]]:
    """Return the entries with `env` over them, new ones behind."""
    there = {each.get("name", "") for each in entries}
    kept = [
        each | _variable(each["name"], env) if each.get("name") in env else each for each in entries
    ]
    return [*kept, *(_variable(name, env) for name in env if name not in there)]


def _variable(name: str, env: dict[str, str]) -> dict[str, str]:
    return {"name": name, "value": env[name]}


def _lay_scheduling(spec: dict[str, Any], scheduling: Scheduling) -> None:
    there = spec.get("scheduling", {})
    if reading.strategy(there) != scheduling.strategy:
        there["strategy"] = scheduling.strategy
    for field, seconds in (
        ("timeout", scheduling.timeout),
        ("maxWaitDuration", scheduling.max_wait),
    ):
        if seconds is not None and reading.seconds(there, field) != seconds:
            there[field] = f"{seconds}s"
    if there:
        spec["scheduling"] = there


def _plain_fields(job: Job) -> dict[str, str | None]:
    return {
        "serviceAccount": job.service_account,
        "network": job.network,
        "tensorboard": job.tensorboard,
    }


def _lay(there: dict[str, Any], field: str, value: Any) -> None:
    """Put a value where it says something and something else is there."""
    if value and there.get(field) != value:
        there[field] = value
