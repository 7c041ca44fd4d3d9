"""A view of the request that launches a job, so that jobs of every format are checked alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.job import reduction_server, reservation, vertex
from distlaunch.job.model import Machine
from distlaunch.job.tasks import POOL_ROLES
from distlaunch.job.vertex import fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.model import Job, Pool, Strategy

SLURM_TASK = "task"
"""The machine of a pool on Slurm."""

_ROLES = tuple(role.field for role in POOL_ROLES)

_SEARCH = fields.TUNED - {"trialJobSpec"}


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """A worker pool."""

    role: str  # a `PoolRole.field`, reduction_server, or "pool 4" for a pool after these
    replicas: int
    machine: str
    accelerator: str | None = None
    accelerator_count: int = 0  # of each machine
    topology: str | None = None  # of a TPU, such as 2x4
    disk_type: str | None = None
    disk_gb: int | None = None
    image: str | None = None  # None for the image that is built
    module: str | None = None  # of Google's pythonPackageSpec
    reservation: str | None = None  # its full name, or any
    variables: int = 0  # the number of environment variables

    @property
    def section(self) -> str:
        """Its key in the job file."""
        if self.role == reduction_server.KEY:
            return self.role
        return f"cluster.{self.role}" if self.role in _ROLES else "vertex"

    def key(self, field: str) -> str:
        """Return the key of a field in the job file, such as ``accelerator.count``."""
        return f"{self.section}.{field}" if self.role in _ROLES else self.section

    @property
    def is_training(self) -> bool:
        """Whether its tasks train together."""
        return self.role in ("chief", "workers")

    @property
    def is_on_slurm(self) -> bool:
        """Whether it is a pool of tasks, of no machine type."""
        return self.machine == SLURM_TASK

    @property
    def has_tpu(self) -> bool:
        """Whether its machines have TPUs."""
        return self.topology is not None or (self.accelerator or "").startswith("TPU")

    def describe_machine(self) -> str:
        """Return one of its machines in words, such as ``n1-standard-8 with 1 NVIDIA_TESLA_T4``."""
        kind = f" with {self.accelerator_count} {self.accelerator}" if self.accelerator else ""
        return f"{self.machine}{kind}{f' {self.topology}' if self.topology else ''}"

    def describe(self) -> str:
        """Return it in words, such as ``3 x n1-standard-8 with 1 NVIDIA_TESLA_T4``."""
        return f"{self.replicas} x {self.describe_machine()}"


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job; `pools` are those with machines, in Google's launch, and times are in seconds.

    `search` are the fields of a tuned job's search in Google's JSON names, None for other jobs.
    `encryption_key` is None for Google's default key.
    """

    name: str
    project: str
    region: str
    pools: tuple[PoolRequest, ...]
    strategy: Strategy = "STANDARD"
    timeout: int = fields.DEFAULT_TIMEOUT
    max_wait: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    service_account: str | None = None
    network: str | None = None
    tensorboard: str | None = None
    experiment: str | None = None
    experiment_run: str | None = None
    trials: int = 1
    trials_at_once: int = 1
    search: Mapping[str, Any] | None = None
    encryption_key: str | None = None
    persistent_resource: str | None = None
    web_access: bool = False

    @property
    def has_parameter_servers(self) -> bool:
        """Whether its workers train asynchronously, each by itself."""
        return any(pool.role == "parameter_servers" for pool in self.pools)

    @property
    def machines(self) -> str:
        """Its machine types in words, each once."""
        return " and ".join(dict.fromkeys(pool.describe_machine() for pool in self.pools))

    @property
    def reservations(self) -> tuple[str, ...]:
        """The full names of the reservations of its pools, or `any`, each once."""
        names = (pool.reservation for pool in self.pools)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @property
    def spec(self) -> str:
        """The field of the request with the worker pools."""
        return vertex.SPECS["customJobs" if self.search is None else "hyperparameterTuningJobs"]


def job_request(launch: LaunchRequest) -> JobRequest:
    """Return a view of the request that launches a job."""
    job = launch.job
    if job.is_on_slurm:
        return slurm_request(job)
    body = {"displayName": job.name} | launch.request("check", image=None)
    return view_request(body, vertex.collection(job), job.project or "", job.region or "")


def slurm_request(job: Job) -> JobRequest:
    """Return a view of a job on Slurm: tasks with GPUs, in no project or region."""
    pools = zip(POOL_ROLES, job.cluster.pools, strict=True)
    return JobRequest(
        name=job.name,
        project="",
        region="",
        pools=tuple(_slurm_pool(role.field, pool) for role, pool in pools if pool and pool.count),
        timeout=job.slurm.time or job.scheduling.timeout or 0,
        web_access=job.web_access,
    )


def _slurm_pool(role: str, pool: Pool) -> PoolRequest:
    gpus = pool.machine.task_gpus
    return PoolRequest(role, pool.count, SLURM_TASK, "GPU" if gpus else None, gpus)


def view_request(
    body: Mapping[str, Any], collection: vertex.Collection, project: str, region: str
) -> JobRequest:
    """Return a view of a request, or of a job as Google returns it."""
    spec = body.get(vertex.SPECS[collection], {})
    scheduling = spec.get("scheduling", {})
    is_tuned = collection == "hyperparameterTuningJobs"
    return JobRequest(
        name=body.get("displayName", ""),
        project=project,
        region=region,
        pools=tuple(pools_of(spec.get("workerPoolSpecs", []))),
        strategy=fields.strategy(scheduling),
        timeout=fields.seconds(scheduling, "timeout") or fields.DEFAULT_TIMEOUT,
        max_wait=fields.seconds(scheduling, "maxWaitDuration"),
        labels=tuple(body.get("labels", {}).items()),
        service_account=spec.get("serviceAccount"),
        network=spec.get("network"),
        tensorboard=spec.get("tensorboard"),
        experiment=spec.get("experiment"),
        experiment_run=spec.get("experimentRun"),
        trials=body.get("maxTrialCount", 1) if is_tuned else 1,
        trials_at_once=body.get("parallelTrialCount", 1) if is_tuned else 1,
        search={key: body[key] for key in body if key in _SEARCH} if is_tuned else None,
        persistent_resource=spec.get("persistentResourceId") or None,
        encryption_key=body.get("encryptionSpec", {"kmsKeyName": None}).get("kmsKeyName", ""),
        web_access=spec.get("enableWebAccess", False),
    )


def machine_of(pool: PoolRequest) -> Machine:
    """Return the machine of a pool, with its accelerators."""
    return Machine(pool.machine, pool.accelerator, pool.accelerator_count)


def pools_of(specs: list[dict[str, Any]]) -> list[PoolRequest]:
    """Return the worker pools of a request, or of a job as Google returns it."""
    roles = [*_ROLES, *(f"pool {index}" for index in range(len(_ROLES), len(specs)))]
    if fields.reduction_server(specs):
        roles[reduction_server.POOL] = reduction_server.KEY
    return [
        _pool(role, spec)
        for role, spec in zip(roles, specs, strict=False)
        if spec and int(spec.get("replicaCount", 1))
    ]


def _pool(role: str, spec: Mapping[str, Any]) -> PoolRequest:
    machine, disk = fields.machine(spec), spec.get("diskSpec", {})
    program = fields.program(spec)
    return PoolRequest(
        role,
        int(spec.get("replicaCount", 1)),  # text in Google's responses
        machine.type,
        machine.accelerator,
        machine.accelerator_count,
        spec.get("machineSpec", {}).get("tpuTopology") or None,
        disk.get("bootDiskType") or None,
        disk.get("bootDiskSizeGb"),
        program.image if program else None,
        program.module if program else None,
        reservation.of_machine(spec.get("machineSpec", {})),
        len(program.env) if program else 0,
    )
