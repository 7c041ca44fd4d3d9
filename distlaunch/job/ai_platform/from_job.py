"""A Job → AI Platform's format, with a line for each thing that it cannot express."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlaunch.errors import DistlaunchError
from distlaunch.job import vertex
from distlaunch.job.ai_platform import ACCELERATORS
from distlaunch.job.ai_platform.fields import (
    CONFIG_FIELDS,
    JOB_FIELDS,
    SPEC_FIELDS,
    from_study,
    move_fields,
    reverse,
)
from distlaunch.job.launch import JOB_DIR
from distlaunch.job.tasks import POOL_ROLES
from distlaunch.job.validation import dotted_path
from distlaunch.job.vertex.fields import is_reduction_server, leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.job.model import Job


def from_job(job: Job, image: str | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return ``trainingInput`` of a job, and a line for each thing that it cannot express.

    The caller writes the job's labels, which are outside of it. `image` is that of the pools
    without one, None if it is not known. A search that the format cannot express is an error.
    """
    if job.tuning is None and vertex.is_tuned(job):
        raise DistlaunchError(
            "studySpec: AI Platform's format cannot express this search: it has no conditional "
            "parameters, default values or several metrics; write it with --format vertex"
        )
    has_folder = vertex.output_directory(job) or not job.bucket
    job_dir = None if has_folder else f"{job.bucket}/{job.name}"
    body = vertex.plain_request(job, image=image, labels={}, job_dir=job_dir)
    spec = body[vertex.SPECS[vertex.collection(job)]]
    training_input: dict[str, Any] = {"scaleTier": "CUSTOM"}
    notes = list(_move_pools(spec, training_input))
    if job.region:
        training_input["region"] = job.region
    if job.tuning:
        training_input["hyperparameters"] = from_study(body["studySpec"])
    move_fields(spec, training_input, reverse(SPEC_FIELDS))
    move_fields(body, training_input, reverse(JOB_FIELDS))
    for name in ("displayName", "labels"):
        body.pop(name, None)
    notes += [
        f"{dotted_path(path)}: left out, as AI Platform's jobs have no such field"
        for path, _ in leaves(body)
    ]
    return training_input, tuple(notes)


def _move_pools(spec: dict[str, Any], training_input: dict[str, Any]) -> Iterator[str]:
    """Move the fields of a CustomJobSpec's worker pools; yield what cannot be expressed."""
    pools = spec["workerPoolSpecs"]
    if any(map(is_reduction_server, pools)):
        pools[:] = [{} if is_reduction_server(pool) else pool for pool in pools]
        yield "reduction_server: left out, as AI Platform had no Reduction Server"
    field = "containerSpec" if "pythonPackageSpec" not in pools[0] else "pythonPackageSpec"
    programs = [pool.setdefault(field, {}) for pool in pools if pool]
    variables = {each.get("name", "") for program in programs for each in program.pop("env", ())}
    if variables:
        names = ", ".join(sorted(variables))
        yield f"env: {names}: left out, as AI Platform sets no variables; set them in the image"
    folder = spec.get("baseOutputDirectory", {}).get("outputUriPrefix")
    _move_args(programs, training_input, folder)
    yield from _move_image(programs, training_input, is_package=field == "pythonPackageSpec")
    for role, pool in zip(POOL_ROLES, pools, strict=False):
        name = role.ai_platform
        machine = pool.get("machineSpec", {})
        if machine.get("acceleratorType", ACCELERATORS[0]) not in ACCELERATORS:
            reason = f"{machine.pop('acceleratorType')} left out, as AI Platform never had it"
            yield f"{name}Config.acceleratorConfig: {reason}"
            del machine["acceleratorCount"]
        fields = {"machineSpec.machineType": f"{name}Type", "replicaCount": f"{name}Count"}
        config = {each: f"{name}Config.{old}" for old, each in CONFIG_FIELDS.items()}
        move_fields(pool, training_input, fields | config)
    del training_input["masterCount"]


def _move_args(
    programs: list[dict[str, Any]], training_input: dict[str, Any], job_dir: str | None
) -> None:
    """Move the args that all programs have, without the --job-dir that AI Platform adds."""
    for program in programs:
        if program.get("args", [])[-2:] == [JOB_DIR, job_dir]:
            program["args"] = program["args"][:-2]
    args = programs[0].get("args")
    is_shared = all(program.get("args") == args for program in programs)
    if args and is_shared and not any("command" in program for program in programs):
        training_input["args"] = args
        for program in programs:
            del program["args"]


def _move_image(
    programs: list[dict[str, Any]], training_input: dict[str, Any], *, is_package: bool
) -> Iterator[str]:
    """Move the master's package, or leave its image to the other pools with the same."""
    master, *others = programs
    if not is_package:
        training_input["useChiefInTfConfig"] = True
        if "imageUri" not in master:
            yield "masterConfig.imageUri: left out, as the image is not known yet; build it first"
        for program in others:
            if program.get("imageUri") == master.get("imageUri"):
                program.pop("imageUri", None)
        return
    for program in others:
        if program == master:
            program.clear()
    move_fields(
        master, training_input, {"packageUris": "packageUris", "pythonModule": "pythonModule"}
    )
    yield (
        f"masterConfig.imageUri: {master.pop('executorImageUri', None)} left out, as AI Platform "
        "installs packages into its own runtimes; add runtimeVersion and pythonVersion"
    )
