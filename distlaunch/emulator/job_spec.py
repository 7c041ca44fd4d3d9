"""A job's specification as replicas, with their commands, variables and paths."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.buckets import local_path
from distlaunch.errors import DistlaunchError
from distlaunch.job.reduction_server import is_image
from distlaunch.job.tasks import TASK_TYPES, Task
from distlaunch.job.tf_config import EXPECTED_GPUS, WORKER_POOLS, replica_environment
from distlaunch.job.trial import argument
from distlaunch.job.vertex import fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of a worker pool."""

    task: Task
    image: str
    command: tuple[str, ...]  # replaces the entrypoint of the image
    args: tuple[str, ...]
    env: Mapping[str, str]
    module: str | None  # of a pythonPackageSpec
    packages: tuple[str, ...]  # gs://…, of a pythonPackageSpec

    @property
    def name(self) -> str:
        """The name in logs and errors, such as ``workerpool1-0``."""
        return f"{WORKER_POOLS[self.task.type]}-{self.task.index}"

    @property
    def is_started(self) -> bool:
        """Whether the emulator starts it; it has no image of Google's Reduction Server."""
        return not is_image(self.image)


@dataclass(frozen=True, slots=True)
class Workload:
    """Replicas that run together: a custom job, or one trial of a tuning job."""

    job_id: str  # the number at the end of the job's name
    project_number: str
    replicas: tuple[Replica, ...]  # pool by pool; the first is the primary one
    timeout: float  # seconds
    retries: bool
    restarts_whole_job: bool  # where a replica would be restarted
    job_dir: str | None = None  # baseOutputDirectory, gs://…
    trial: str | None = None  # the trial's id

    @property
    def expects_gpus(self) -> bool:
        """Whether a replica expects GPUs, which the emulator does not offer."""
        return any(replica.env.get(EXPECTED_GPUS, "0") != "0" for replica in self.replicas)


def read_workload(name: str, spec: Mapping[str, Any]) -> Workload:
    """Read the CustomJobSpec of the job with a resource name."""
    scheduling = spec.get("scheduling", {})
    seconds = float(str(scheduling.get("timeout", "0s")).removesuffix("s"))
    _, project_number, *_, job_id = name.split("/")
    return Workload(
        job_id=job_id,
        project_number=project_number,
        replicas=tuple(_read_replicas(spec["workerPoolSpecs"])),
        timeout=seconds or fields.DEFAULT_TIMEOUT,
        retries=not scheduling.get("disableRetries", False),
        restarts_whole_job=scheduling.get("restartJobOnWorkerRestart", False),
        job_dir=spec.get("baseOutputDirectory", {}).get("outputUriPrefix"),
    )


def trial_workload(workload: Workload, trial: Mapping[str, Any]) -> Workload:
    """Return one trial: its parameters as arguments, and a job folder of its own."""
    options = tuple(
        f"--{parameter['parameterId']}={argument(parameter['value'])}"
        for parameter in trial["parameters"]
    )
    return replace(
        workload,
        trial=trial["id"],
        job_dir=workload.job_dir and f"{workload.job_dir.rstrip('/')}/{trial['id']}",
        replicas=tuple(
            replace(replica, args=replica.args + options) for replica in workload.replicas
        ),
    )


def _read_replicas(pools: list[Mapping[str, Any]]) -> Iterator[Replica]:
    for task_type, pool in zip(TASK_TYPES, pools, strict=False):
        for index in range(int(pool.get("replicaCount", 1 if pool else 0))):
            yield _read_replica(Task(task_type, index), pool)


def _read_replica(task: Task, pool: Mapping[str, Any]) -> Replica:
    container, package = pool.get("containerSpec", {}), pool.get("pythonPackageSpec", {})
    program = container or package
    return Replica(
        task=task,
        image=container.get("imageUri") or package.get("executorImageUri", ""),
        command=tuple(container.get("command", ())),
        args=tuple(program.get("args", ())),
        env={variable["name"]: variable.get("value", "") for variable in program.get("env", ())},
        module=package.get("pythonModule"),
        packages=tuple(package.get("packageUris", ())),
    )


def variables(
    workload: Workload,
    replica: Replica,
    addresses: Mapping[Task, str],
    *,
    job_dir: str | None,
    metric_file: str,
) -> dict[str, str]:
    """Return the variables that Vertex AI and the job set; paths are those for the replica."""
    env = replica_environment(addresses, replica.task, job_id=workload.job_id, job_dir=job_dir)
    env["CLOUD_ML_PROJECT_ID"] = workload.project_number
    if workload.trial is not None:
        for name in {"CLUSTER_SPEC", "TF_CONFIG"} & env.keys():
            spec = json.loads(env[name])
            spec["task"]["trial"] = workload.trial
            env[name] = json.dumps(spec)
        env |= {"CLOUD_ML_TRIAL_ID": workload.trial, "CLOUD_ML_HP_METRIC_FILE": metric_file}
    without_gpus = {EXPECTED_GPUS: "0"} if EXPECTED_GPUS in replica.env else {}
    return {**env, **replica.env, **without_gpus}


def storage_path(storage: Path, uri: str) -> Path:
    """Return the path of a ``gs://`` URI in the folder of the buckets, or raise DistlaunchError."""
    try:
        return local_path(storage, uri)
    except ValueError as problem:
        raise DistlaunchError(f"{uri}: {problem}") from None


def package_command(module: str, files: Sequence[str], folder: str) -> tuple[str, ...]:
    """Return the command that installs Python packages into a folder and runs a module of them."""
    target = shlex.quote(folder)
    pip = "python3 -m pip install --quiet --disable-pip-version-check"
    install = f"{pip} --target {target} {shlex.join(files)}"
    run = f'PYTHONPATH={target}:"$PYTHONPATH" exec python3 -m {shlex.quote(module)} "$@"'
    return ("sh", "-c", f"{install} && {run}", "sh")
