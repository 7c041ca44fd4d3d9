"""What the host starts for a task, and the environment that it gets."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.job.tf_config import replica_environment
from distlaunch.local import container
from distlaunch.local.task_process import TaskPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.tasks import Task
    from distlaunch.local.host_resources import Share
    from distlaunch.local.run_plan import RunSpec
    from distlaunch.task_files import AttemptFolder

_ALL_GPUS = {"count": -1, "capabilities": [["gpu"]]}  # of which CUDA_VISIBLE_DEVICES names some
PEER_TIMEOUT = 60  # seconds after which a trainer gives up on peers that have not come
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DEFAULTS = {
    "DISTLAUNCH_PEER_TIMEOUT": str(PEER_TIMEOUT),
    # The host imports TensorFlow before the trainer could set these (see its task.py).
    "GCS_READ_CACHE_BLOCK_SIZE_MB": "4",
    "GCS_READ_CACHE_MAX_SIZE_MB": "256",
    "PYTHONHASHSEED": "0",  # sets have one order in all tasks, and after a restart
    "PYTHONUNBUFFERED": "1",
}

# What only the cloud or the launcher sets: a job within a job must not join the outer cluster.
_REPLICA_VARIABLES = (
    "TF_CONFIG",
    "CLUSTER_SPEC",
    "AIP_MODEL_DIR",
    "AIP_CHECKPOINT_DIR",
    "AIP_TENSORBOARD_LOG_DIR",
    "CLOUD_ML_JOB_ID",
    "CLOUD_ML_PROJECT_ID",
    "DISTLAUNCH_AUDIT",
)


def common_environment(spec: RunSpec) -> dict[str, str]:
    """Return what all tasks see alike: this process's environment and the job's own variables.

    A container has its image's environment in place of this process's.
    """
    if spec.program.kind == "image":
        inside = _DEFAULTS | {"HOME": "/tmp"} | dict(spec.env)  # noqa: S108
        return inside | without_proxy(inside)
    inherited = {
        name: value for name, value in os.environ.items() if name not in _REPLICA_VARIABLES
    }
    # Not the shell's backend of Keras, which the cloud does not see either.
    common = _DEFAULTS | inherited | {"KERAS_BACKEND": "tensorflow"} | dict(spec.env)
    # So that `python` is this Python, with the packages that are installed beside distlaunch.
    folders = [str(Path(sys.executable).parent), common.get("PATH", os.defpath)]
    own = {"PATH": os.pathsep.join(folders), "PYTHONUNBUFFERED": "1"}
    return common | own | without_proxy(common)


def without_proxy(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which tasks on this machine reach each other without a proxy.

    gRPC reads no_grpc_proxy, or no_proxy if that is not set; other clients read no_proxy, or
    NO_PROXY if that is not set. A '*' means every host only if it is alone.
    """
    direct = env.get("no_proxy", env.get("NO_PROXY", ""))
    return {
        "no_proxy": direct if direct.strip() == "*" else _with_loopback(direct),
        "no_grpc_proxy": _with_loopback(env.get("no_grpc_proxy", direct)),
    }


def _with_loopback(hosts: str) -> str:
    given = [host.strip() for host in hosts.split(",") if host.strip()]
    return ",".join(dict.fromkeys([*given, *_LOOPBACK]))


def plan_task(
    common: Mapping[str, str],
    spec: RunSpec,
    task: Task,
    share: Share,
    *,
    work_dir: Path,
    addresses: Mapping[Task, str],
    attempt: AttemptFolder,
    restarts: int,
) -> TaskPlan:
    """Return what the host starts for a task, with its whole environment."""
    env = {
        **common,
        **share.environment(common),
        **replica_environment(addresses, task, job_id=spec.folder.id, job_dir=spec.folder.job_dir),
        "DISTLAUNCH_EVENTS": str(attempt.events(task)),
        "DISTLAUNCH_RESTARTS": str(restarts),
        **({"DISTLAUNCH_AUDIT": "1"} if spec.options.audit else {}),
    }
    program = spec.program
    if program.kind == "image":
        parts = ("distlaunch", spec.folder.id, os.getpid(), attempt.path.name, task)
        name = "-".join(map(str, parts)).replace(":", "-")
        contained = _container_arguments(spec, share, env)
        argv, cores = container.argv(container.RUN), None
        env = {**os.environ, container.SPEC: json.dumps({"name": name, **contained})}
    else:
        name, cores = None, share.cores
        argv = [*program.words]
    is_module = program.kind == "module"
    if spec.debugger and spec.debugger.task == str(task):
        argv, is_module = spec.debugger.words(argv, is_module=is_module), False
    return TaskPlan(
        name=str(task),
        argv=argv,
        is_module=is_module,
        env=env,
        work_dir=str(work_dir),
        cores=cores,
        container=name,
    )


def _container_arguments(spec: RunSpec, share: Share, env: Mapping[str, str]) -> dict[str, Any]:
    """Return docker-py's arguments for a task's container; paths in it are those outside."""
    program = spec.program
    writable = [] if spec.folder.uri else [spec.folder.job_dir]
    binds = [f"{folder}:{folder}" for folder in [*writable, spec.folder.task_logs]]
    if program.credentials:
        binds.append(f"{program.credentials}:{program.credentials}:ro")
        env = {**env, "GOOGLE_APPLICATION_CREDENTIALS": program.credentials}
    return {
        "image": program.words[0],
        "command": list(program.words[1:]) or None,
        "environment": dict(env),
        "user": f"{os.getuid()}:{os.getgid()}",  # what it writes is the caller's
        "host_config": {
            "network_mode": "host",  # the ports of this machine, as tasks without containers have
            "pid_mode": "host",  # SIGTERM ends what does not handle it; process 1 ignores it
            "binds": binds,
            "cpuset_cpus": ",".join(map(str, share.cores)) if share.cores else None,
            "device_requests": [_ALL_GPUS] if share.gpus else None,
        },
    }
