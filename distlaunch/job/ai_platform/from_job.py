"""A Job → AI Platform's format, with a line for each thing that it cannot express."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from pydantic.alias_generators import to_camel

from distlaunch.errors import DistlaunchError
from distlaunch.job import vertex
from distlaunch.job.ai_platform.machines import CLOUD_TPU, SMALLEST_TPU, TPU_MACHINE
from distlaunch.job.ai_platform.models import (
    AcceleratorConfig,
    AcceleratorType,
    DiskConfig,
    EncryptionConfig,
    ReplicaConfig,
    SchedulingConfig,
    TrainingInput,
)
from distlaunch.job.ai_platform.tuning import OTHER_FIELDS, from_tuning
from distlaunch.job.job_dir import JOB_DIR
from distlaunch.job.model import POOL_ROLES, Program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distlaunch.job.model import Job, Machine, Pool

_MASTER = POOL_ROLES[0].ai_platform
_SHORTEST_WAIT = 1800  # seconds
# Fields of Google's job that AI Platform has under other names.
_TRANSLATED = {
    *OTHER_FIELDS,
    "encryptionSpec.kmsKeyName",
    "baseOutputDirectory.outputUriPrefix",
    "enableWebAccess",
    "diskSpec.bootDiskType",
    "diskSpec.bootDiskSizeGb",
}


def from_job(job: Job, image: str | None) -> tuple[TrainingInput, tuple[str, ...]]:
    """Return ``trainingInput`` of a job, and a line for each thing that it cannot express.

    The job's labels are outside of ``trainingInput``; the caller writes them.

    Parameters
    ----------
    image
        The job's image, for the pools without one; None if it is not known.

    Raises
    ------
    DistlaunchError
        If the job is a search that the format cannot express.
    """
    if job.tuning is None and vertex.is_tuned(job):
        raise DistlaunchError(
            "studySpec: AI Platform's format cannot express this search: it has no conditional "
            "parameters, default values or several metrics; write it with --format vertex"
        )
    spec: Mapping[str, Any] = job.vertex.get("trialJobSpec" if job.tuning else "jobSpec", {})
    job_dir = spec.get("baseOutputDirectory", {}).get("outputUriPrefix")
    if not job_dir and job.bucket:
        job_dir = f"{job.bucket}/{job.name}"
    programs = {
        role.ai_platform: _program(job, pool, image, job_dir)
        for role, pool in zip(POOL_ROLES, job.cluster.pools, strict=True)
        if pool and pool.count
    }
    master = programs[_MASTER]
    args = _shared_args(programs)
    notes: list[str] = []
    training_input = TrainingInput(
        scale_tier="CUSTOM",
        args=args or None,
        job_dir=job_dir,
        region=job.region,
        network=job.network,
        service_account=job.service_account,
        enable_web_access=spec.get("enableWebAccess"),
        use_chief_in_tf_config=None if master.module else True,
        python_module=master.module,
        package_uris=master.packages or None,
        scheduling=_scheduling(job, notes),
        encryption_config=_encryption(job.vertex),
        hyperparameters=from_tuning(job.tuning, job.vertex) if job.tuning else None,
        **_role_fields(job, programs, spec, notes, containers_have_args=args is None),
    )
    notes += _not_expressed(job, programs)
    return training_input, tuple(notes)


def _program(job: Job, pool: Pool, image: str | None, job_dir: str | None) -> Program:
    """Return a pool's program, without the --job-dir that AI Platform adds."""
    program = pool.program or Program(args=job.args)
    has_job_dir = program.args[-2:] == (JOB_DIR, job_dir)
    args = program.args[:-2] if has_job_dir else program.args
    return replace(program, image=program.image or image, args=args)


def _shared_args(programs: Mapping[str, Program]) -> tuple[str, ...] | None:
    """Return the args of all pools, None if they differ or if a pool has a command."""
    different = {program.args for program in programs.values()}
    if len(different) > 1 or any(program.command for program in programs.values()):
        return None
    return different.pop()


def _role_fields(
    job: Job,
    programs: Mapping[str, Program],
    spec: Mapping[str, Any],
    notes: list[str],
    *,
    containers_have_args: bool,
) -> dict[str, Any]:
    """Return type, config and count of each role."""
    fields: dict[str, Any] = {}
    pool_specs: list[Mapping[str, Any]] = spec.get("workerPoolSpecs", [])
    for index, (role, pool) in enumerate(zip(POOL_ROLES, job.cluster.pools, strict=True)):
        if not pool or not pool.count:
            continue
        name = role.ai_platform
        program = programs[name]
        inherits = name != _MASTER and program.image == programs[_MASTER].image
        disk = pool_specs[index].get("diskSpec") if index < len(pool_specs) else None
        config = ReplicaConfig(
            image_uri=None if inherits or program.module else program.image,
            container_command=program.command or None,
            container_args=program.args if containers_have_args else None,
            accelerator_config=_accelerators(name, pool.machine, notes),
            disk_config=_disk(disk) if disk else None,
        )
        is_tpu = pool.machine.type == TPU_MACHINE
        fields[f"{name}_type"] = CLOUD_TPU if is_tpu else pool.machine.type
        fields[f"{name}_config"] = config if config != ReplicaConfig() else None
        if name != _MASTER:
            fields[f"{name}_count"] = pool.count
    return fields


def _accelerators(role: str, machine: Machine, notes: list[str]) -> AcceleratorConfig | None:
    accelerator: Any = machine.accelerator
    is_pod = machine.accelerator_count > SMALLEST_TPU.accelerator_count
    if accelerator in ("TPU_V2", "TPU_V3") and is_pod:
        accelerator = f"{accelerator}_POD"
    if accelerator is None:
        return None
    if accelerator not in get_args(AcceleratorType):
        name = f"{to_camel(role)}Config.acceleratorConfig"
        notes.append(f"{name}: {accelerator} left out, as AI Platform never had it")
        return None
    return AcceleratorConfig(type=accelerator, count=machine.accelerator_count)


def _disk(disk: Mapping[str, Any]) -> DiskConfig:
    return DiskConfig(
        boot_disk_type=disk.get("bootDiskType"), boot_disk_size_gb=disk.get("bootDiskSizeGb")
    )


def _scheduling(job: Job, notes: list[str]) -> SchedulingConfig | None:
    strategy, timeout = job.scheduling.strategy, job.scheduling.timeout
    wait = job.scheduling.max_wait
    if strategy != "STANDARD":
        notes.append(f"scheduling.strategy: {strategy} left out, as AI Platform had none")
    if wait is not None and wait < _SHORTEST_WAIT:
        notes.append(f"scheduling.max_wait: {wait}s left out; AI Platform waited 1800s or more")
        wait = None
    if timeout is None and wait is None:
        return None
    return SchedulingConfig(
        max_running_time=None if timeout is None else f"{timeout}s",
        max_wait_time=None if wait is None else f"{wait}s",
    )


def _encryption(body: Mapping[str, Any]) -> EncryptionConfig | None:
    key = body.get("encryptionSpec", {}).get("kmsKeyName")
    return EncryptionConfig(kms_key_name=key) if key else None


def _not_expressed(job: Job, programs: Mapping[str, Program]) -> Iterator[str]:
    """Yield a line for each part of the job that the format has no field for."""
    variables = {name for program in programs.values() for name in program.env} | job.env.keys()
    if variables:
        names = ", ".join(sorted(variables))
        yield f"env: {names}: left out, as AI Platform sets no variables; set them in the image"
    if job.tensorboard:
        yield "tensorboard: left out, as AI Platform had no managed TensorBoard"
    if job.reduction_server:
        yield "reduction_server: left out, as AI Platform had no Reduction Server"
    master = programs[_MASTER]
    if master.module:
        yield (
            f"masterConfig.imageUri: {master.image} left out, as AI Platform installs packages "
            "into its own runtimes; add runtimeVersion and pythonVersion"
        )
    elif master.image is None:
        yield "masterConfig.imageUri: left out, as the image is not known yet; build it first"
    # Fields that a Job has, too, are translated, or in one of the lines above.
    request = vertex.plain_request(replace(job, vertex={}), image="", labels={}, job_dir="")
    known = _field_paths(request)
    for path, within_section in _field_paths(job.vertex).items():
        if path not in known and within_section not in _TRANSLATED:
            yield f"{path}: left out, as AI Platform's jobs have no such field"


def _field_paths(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the paths of a job's fields, each with the path within its spec or pool."""
    rest = dict(body)
    paths: dict[str, str] = {}
    for name in vertex.SPECS.values():
        spec = dict(rest.pop(name, {}))
        pools = spec.pop("workerPoolSpecs", [])
        paths |= {f"{name}.{path}": path for path in _leaves(spec)}
        for index, pool in enumerate(pools):
            pool_name = f"{name}.workerPoolSpecs[{index}]"
            paths |= {f"{pool_name}.{path}": path for path in _leaves(pool)}
    return {path: path for path in _leaves(rest)} | paths


def _leaves(tree: Mapping[str, Any]) -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from (f"{key}.{path}" for path in _leaves(value))
        else:
            yield key
