"""What a job asks of Google, from the request itself, so that every format is checked alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.job import reduction_server, vertex
from distlaunch.job.model import POOL_ROLES
from distlaunch.job.vertex import fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.model import Strategy
    from distlaunch.submit.plan import LaunchRequest

WEEK = 7 * 24 * 3600
"""Seconds after which Vertex AI ends a job that says no timeout (CustomJobSpec.scheduling)."""

_SEARCH = fields.TUNED - {"trialJobSpec"}

ROLES = tuple(role.field for role in POOL_ROLES)


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """A worker pool.

    Parameters
    ----------
    role
        ``chief``, ``workers``, ``parameter_servers`` (or ``reduction_server``) or ``evaluators``;
        ``pool 4`` for one behind.
    replicas
        How many machines.
    machine
        Their type.
    accelerator, accelerator_count
        On each machine; None and 0 without.
    topology
        Of its TPU, as ``2x4``, None without one.
    disk_type, disk_gb
        Of each boot disk, None for Google's default.
    image
        The image that it names itself, None for the job's own.
    module
        The module of Google's pythonPackageSpec, None for a container.
    variables
        How many variables of the environment it sets.
    """

    role: str
    replicas: int
    machine: str
    accelerator: str | None = None
    accelerator_count: int = 0
    topology: str | None = None
    disk_type: str | None = None
    disk_gb: int | None = None
    image: str | None = None
    module: str | None = None
    variables: int = 0

    @property
    def section(self) -> str:
        """Its key in the job file."""
        if self.role == reduction_server.KEY:
            return self.role
        return f"cluster.{self.role}" if self.role in ROLES else "vertex"

    def key(self, field: str) -> str:
        """Return the key in the job file of one of its fields, as ``accelerator.count``."""
        return f"{self.section}.{field}" if self.role in ROLES else self.section

    @property
    def is_training(self) -> bool:
        """Whether its tasks train together."""
        return self.role in ("chief", "workers")

    def describe(self) -> str:
        """Say what it is, as ``3 x n1-standard-8 with 1 NVIDIA_TESLA_T4``."""
        kind = f" with {self.accelerator_count} {self.accelerator}" if self.accelerator else ""
        shape = f" {self.topology}" if self.topology else ""
        return f"{self.replicas} x {self.machine}{kind}{shape}"


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a job asks for.

    Parameters
    ----------
    pools
        Those with machines, in Google's order; the chief's is the first, if there is one.
    timeout
        Seconds; Google's default where the job does not say.
    max_wait
        Seconds to wait for machines, None for Google's default.
    labels
        The job's own and ours.
    service_account, network, tensorboard
        None without.
    trials, trials_at_once
        Of a tuned job; 1 of any other.
    search
        What a tuned job says of its search, in Google's JSON names; None of any other.
    encryption_key
        What its data are encrypted with, None for a key of Google's own.
    """

    name: str
    project: str
    region: str
    pools: tuple[PoolRequest, ...]
    strategy: Strategy = "STANDARD"
    timeout: int = WEEK
    max_wait: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    service_account: str | None = None
    network: str | None = None
    tensorboard: str | None = None
    trials: int = 1
    trials_at_once: int = 1
    search: Mapping[str, Any] | None = None
    encryption_key: str | None = None

    @property
    def spec(self) -> str:
        """Where its request says what runs."""
        return vertex.SPECS["customJobs" if self.search is None else "hyperparameterTuningJobs"]


def job_request(order: LaunchRequest) -> JobRequest:
    """Return what an order's request asks for."""
    job = order.job
    body = order.request("check", image=None)
    where = vertex.collection(job)
    spec = body.get(vertex.SPECS[where], {})
    scheduling = spec.get("scheduling", {})
    is_tuned = where == "hyperparameterTuningJobs"
    return JobRequest(
        name=body.get("displayName", job.name),
        project=job.project or "",
        region=job.region or "",
        pools=tuple(pools_of(spec.get("workerPoolSpecs", []))),
        strategy=fields.strategy(scheduling),
        timeout=fields.seconds(scheduling, "timeout") or WEEK,
        max_wait=fields.seconds(scheduling, "maxWaitDuration"),
        labels=tuple(body.get("labels", {}).items()),
        service_account=spec.get("serviceAccount"),
        network=spec.get("network"),
        tensorboard=spec.get("tensorboard"),
        trials=body.get("maxTrialCount", 1) if is_tuned else 1,
        trials_at_once=body.get("parallelTrialCount", 1) if is_tuned else 1,
        search={key: body[key] for key in body if key in _SEARCH} if is_tuned else None,
        encryption_key=body.get("encryptionSpec", {"kmsKeyName": None}).get("kmsKeyName", ""),
    )


def pools_of(specs: list[dict[str, Any]]) -> list[PoolRequest]:
    """Return the worker pools of a job's body, whether it is ours or as Google gives it."""
    roles = [*ROLES, *(f"pool {index}" for index in range(len(ROLES), len(specs)))]
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
        int(spec.get("replicaCount", 1)),  # Google writes it as text
        machine.type,
        machine.accelerator,
        machine.accelerator_count,
        spec.get("machineSpec", {}).get("tpuTopology") or None,
        disk.get("bootDiskType") or None,
        disk.get("bootDiskSizeGb"),
        program.image if program else None,
        program.module if program else None,
        len(program.env) if program else 0,
    )
