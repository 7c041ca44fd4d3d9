"""A job's specification → what is to be run."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.run.running import Replica, Work
from distlaunch.job.model import TASK_TYPES, Task
from distlaunch.job.tf_config import EXPECTED_GPUS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DEFAULT_TIMEOUT = 7 * 24 * 3600.0  # seconds; scheduling.timeout's default
_NAME = re.compile(r"projects/([^/]+)/locations/[^/]+/[^/]+/([^/]+)")


@dataclass(frozen=True, slots=True)
class Scheduling:
    """What a job's scheduling says of its run.

    Parameters
    ----------
    timeout
        Seconds that it may run.
    restarts_whole_job
        Whether the whole job is restarted where a worker would be.
    retries
        Whether anything is restarted.
    """

    timeout: float = _DEFAULT_TIMEOUT
    restarts_whole_job: bool = False
    retries: bool = True


def scheduling(spec: Mapping[str, Any]) -> Scheduling:
    """Read the scheduling of a CustomJobSpec."""
    told = spec.get("scheduling", {})
    retries = not told.get("disableRetries", False)
    return Scheduling(
        timeout=float(str(told.get("timeout", "")).removesuffix("s") or 0) or _DEFAULT_TIMEOUT,
        # disableRetries 'overrides restart_job_on_worker_restart to false', says the API.
        restarts_whole_job=retries and bool(told.get("restartJobOnWorkerRestart", False)),
        retries=retries,
    )


def work(name: str, spec: Mapping[str, Any]) -> Work:
    """Return what a CustomJobSpec has to be run.

    Parameters
    ----------
    name
        The job's resource name, with the project's number in it.
    spec
        In Google's JSON names.
    """
    found = _NAME.fullmatch(name)
    assert found is not None, name  # noqa: S101 - the store makes the names
    return Work(
        job_id=found[2],
        project_number=found[1],
        replicas=tuple(_replicas(spec.get("workerPoolSpecs", []))),
        job_dir=spec.get("baseOutputDirectory", {}).get("outputUriPrefix"),
    )


def trial_of(whole: Work, trial: str, parameters: Mapping[str, object]) -> Work:
    """Return a trial of a tuning job: its parameters as arguments, its own job folder.

    Parameters
    ----------
    trial
        The trial's id.
    parameters
        Values by parameter, numbers or strings.
    """
    more = tuple(f"--{name}={_plain(value)}" for name, value in parameters.items())
    return replace(
        whole,
        trial=trial,
        job_dir=whole.job_dir and f"{whole.job_dir.rstrip('/')}/{trial}",
        replicas=tuple(replace(each, args=each.args + more) for each in whole.replicas),
    )


def expects_gpus(spec: Mapping[str, Any]) -> bool:
    """Whether a replica of a CustomJobSpec expects GPUs, which the emulator does not offer."""
    pools = spec.get("workerPoolSpecs", [])
    return any(_environment(pool).get(EXPECTED_GPUS, "0") != "0" for pool in pools)


def _plain(value: object) -> object:
    """Return whole numbers without a point, for options that take integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _replicas(pools: list[Mapping[str, Any]]) -> Iterator[Replica]:
    for kind, pool in zip(TASK_TYPES, pools, strict=False):
        for index in range(int(pool.get("replicaCount", 1 if pool else 0))):
            yield _replica(Task(kind, index), pool)


def _replica(task: Task, pool: Mapping[str, Any]) -> Replica:
    container = pool.get("containerSpec", {})
    package = pool.get("pythonPackageSpec", {})
    told = container or package
    env = _environment(pool)
    return Replica(
        task=task,
        image=container.get("imageUri") or package.get("executorImageUri", ""),
        command=tuple(container.get("command", ())),
        args=tuple(told.get("args", ())),
        env=env | ({EXPECTED_GPUS: "0"} if EXPECTED_GPUS in env else {}),
        module=package.get("pythonModule"),
        packages=tuple(package.get("packageUris", ())),
    )


def _environment(pool: Mapping[str, Any]) -> dict[str, str]:
    program = pool.get("containerSpec") or pool.get("pythonPackageSpec") or {}
    return {each["name"]: each.get("value", "") for each in program.get("env", ())}
