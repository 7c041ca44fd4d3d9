"""A Job → AI Platform's format, with a note for each thing that it cannot say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from pydantic.alias_generators import to_camel

from distlaunch.errors import DistlaunchError
from distlaunch.job import vertex
from distlaunch.job.ai_platform.cluster import ROLES
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
from distlaunch.job.ai_platform.tuning import WRITTEN_OF_TUNING, from_tuning
from distlaunch.job.model import Program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distlaunch.job.model import Job, Machine, Pool

_SHORTEST_WAIT = 1800  # seconds
_JOB_DIR = "--job-dir"
# Fields of Google's job that AI Platform has under other names.
_WRITTEN = {"encryptionSpec.kmsKeyName", *WRITTEN_OF_TUNING}
_WRITTEN_OF_SPEC = {"baseOutputDirectory.outputUriPrefix", "enableWebAccess"}
_WRITTEN_OF_POOL = {"diskSpec.bootDiskType", "diskSpec.bootDiskSizeGb"}


def from_job(job: Job, image: str | None) -> tuple[TrainingInput, tuple[str, ...]]:
    """Write a job as AI Platform's format, with a note for each thing that it cannot say there.

    The job's labels stand beside ``trainingInput`` there, and not in it, so that whoever
    writes the file writes them.

    Parameters
    ----------
    job
        The job.
    image
        The job's own image, for the pools that have none of their own; None where it is not known.

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
    spec = _spec(job)
    job_dir = _output(spec) or (f"{job.bucket}/{job.name}" if job.bucket else None)
    pools = _pools(job)
    programs = {role: _program(job, pool, image, job_dir) for role, pool in pools.items()}
    master = programs["master"]
    args = _shared_args(programs)
    notes: list[str] = []
    written = TrainingInput(
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
        **_replicas(pools, programs, spec, notes, containers_have_args=args is None),
    )
    notes += _left_out(job, programs)
    return written, tuple(notes)


def _spec(job: Job) -> Mapping[str, Any]:
    """Return what the job says of Google's CustomJobSpec beside its own fields."""
    found: Mapping[str, Any] = job.vertex.get("trialJobSpec" if job.tuning else "jobSpec", {})
    return found


def _output(spec: Mapping[str, Any]) -> str | None:
    folder: str | None = spec.get("baseOutputDirectory", {}).get("outputUriPrefix")
    return folder


def _pools(job: Job) -> dict[str, Pool]:
    cluster = job.cluster
    in_order = (cluster.chief, cluster.workers, cluster.parameter_servers, cluster.evaluators)
    return {role: pool for role, pool in zip(ROLES, in_order, strict=True) if pool and pool.count}


def _program(job: Job, pool: Pool, image: str | None, job_dir: str | None) -> Program:
    """Return what a pool runs, but for the option that AI Platform adds by itself."""
    program = pool.program or Program(args=job.args)
    adds_it = program.args[-2:] == (_JOB_DIR, job_dir)
    args = program.args[:-2] if adds_it else program.args
    return replace(program, image=program.image or image, args=args)


def _shared_args(programs: Mapping[str, Program]) -> tuple[str, ...] | None:
    """Return the args of all pools, None where each has its own or a command."""
    kinds = {program.args for program in programs.values()}
    if len(kinds) > 1 or any(program.command for program in programs.values()):
        return None
    return kinds.pop()


def _replicas(
    pools: Mapping[str, Pool],
    programs: Mapping[str, Program],
    spec: Mapping[str, Any],
    notes: list[str],
    *,
    containers_have_args: bool,
) -> dict[str, Any]:
    """Return type, config and count of each role."""
    master = programs["master"]
    written: dict[str, Any] = {}
    for role, pool in pools.items():
        program = programs[role]
        inherits = role != "master" and program.image == master.image
        config = ReplicaConfig(
            image_uri=None if inherits or program.module else program.image,
            container_command=program.command or None,
            container_args=program.args if containers_have_args else None,
            accelerator_config=_accelerators(role, pool.machine, notes),
            disk_config=_disk(spec, role),
        )
        is_tpu = pool.machine.type == TPU_MACHINE
        written[f"{role}_type"] = CLOUD_TPU if is_tpu else pool.machine.type
        written[f"{role}_config"] = config if config != ReplicaConfig() else None
        if role != "master":
            written[f"{role}_count"] = pool.count
    return written


def _accelerators(role: str, machine: Machine, notes: list[str]) -> AcceleratorConfig | None:
    kind: Any = machine.accelerator
    if kind in ("TPU_V2", "TPU_V3") and machine.accelerator_count > SMALLEST_TPU.accelerator_count:
        kind = f"{kind}_POD"
    if kind is None:
        return None
    if kind not in get_args(AcceleratorType):
        name = f"{to_camel(role)}Config.acceleratorConfig"
        notes.append(f"{name}: {kind} is left out, as AI Platform never had it")
        return None
    return AcceleratorConfig(type=kind, count=machine.accelerator_count)


def _disk(spec: Mapping[str, Any], role: str) -> DiskConfig | None:
    disk = _pool_spec(spec, role).get("diskSpec", {})
    if not disk:
        return None
    return DiskConfig(
        boot_disk_type=disk.get("bootDiskType"), boot_disk_size_gb=disk.get("bootDiskSizeGb")
    )


def _pool_spec(spec: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    specs: list[Mapping[str, Any]] = spec.get("workerPoolSpecs", [])
    index = ROLES.index(role)
    return specs[index] if index < len(specs) else {}


def _scheduling(job: Job, notes: list[str]) -> SchedulingConfig | None:
    asked = job.scheduling
    wait = asked.max_wait
    if asked.strategy != "STANDARD":
        notes.append(f"scheduling.strategy: {asked.strategy} is left out; AI Platform had one only")
    if wait is not None and wait < _SHORTEST_WAIT:
        notes.append(f"scheduling.max_wait: {wait}s is left out; AI Platform waited 1800s or more")
        wait = None
    if asked.timeout is None and wait is None:
        return None
    return SchedulingConfig(
        max_running_time=None if asked.timeout is None else f"{asked.timeout}s",
        max_wait_time=None if wait is None else f"{wait}s",
    )


def _encryption(bag: Mapping[str, Any]) -> EncryptionConfig | None:
    key = bag.get("encryptionSpec", {}).get("kmsKeyName")
    return EncryptionConfig(kms_key_name=key) if key else None


def _left_out(job: Job, programs: Mapping[str, Program]) -> Iterator[str]:
    """Tell of what the format has no field for."""
    variables = {name for program in programs.values() for name in program.env} | job.env.keys()
    if variables:
        names = ", ".join(sorted(variables))
        yield f"env: {names}: left out, as AI Platform sets none; set them in the image"
    if job.tensorboard:
        yield "tensorboard: left out, as AI Platform had no managed TensorBoard"
    if job.reduction_server:
        yield "reduction_server: left out, as AI Platform had no Reduction Server"
    master = programs["master"]
    if master.module:
        yield (
            f"masterConfig.imageUri: {master.image} is left out, as AI Platform installs packages "
            "into a runtime of its own; add runtimeVersion and pythonVersion"
        )
    elif master.image is None:
        yield "masterConfig.imageUri: left out, as the image is not known yet; build it first"
    for path in _paths_left_out(job):
        yield f"{path}: left out, as AI Platform's jobs have no such field"


def _paths_left_out(job: Job) -> Iterator[str]:
    """Return the fields of Google's job that are not written, as ``jobSpec.reservedIpRanges``.

    What a Job has a field for is written, or told of by itself.
    """
    known = _fields(vertex.plain_request(replace(job, vertex={}), image="", labels={}, job_dir=""))
    for path, plain in _fields(job.vertex).items():
        is_written = plain in _WRITTEN | _WRITTEN_OF_SPEC | _WRITTEN_OF_POOL
        if path not in known and not is_written:
            yield path


def _fields(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the paths of a job's fields, each with what it is called within its own section."""
    bag = dict(job)
    found: dict[str, str] = {}
    for name in vertex.SPECS.values():
        spec = dict(bag.pop(name, {}))
        pools = spec.pop("workerPoolSpecs", [])
        found |= {f"{name}.{path}": path for path in _leaves(spec)}
        for index, pool in enumerate(pools):
            within = f"{name}.workerPoolSpecs[{index}]"
            found |= {f"{within}.{path}": path for path in _leaves(pool)}
    return {path: path for path in _leaves(bag)} | found


def _leaves(tree: Mapping[str, Any]) -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from (f"{key}.{path}" for path in _leaves(value))
        else:
            yield key
