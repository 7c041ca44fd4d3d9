"""TF_CONFIG and the environment of one replica on Vertex AI."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from distlaunch.errors import UsageError
from distlaunch.job.tasks import POOL_ROLES, TASK_TYPES, Task, TaskType

if TYPE_CHECKING:
    from collections.abc import Mapping

EXPECTED_GPUS = "DISTLAUNCH_EXPECTED_GPUS"
"""The variable with the number of GPUs of a task's machine; the trainer stops if it sees fewer."""

WORKER_POOLS = {role.task_type: role.worker_pool for role in POOL_ROLES}

_PROJECT_NUMBER = "0"  # of CLOUD_ML_PROJECT_ID: no project at Google has it
_PORT = 2222  # as on Vertex AI
_HIGHEST_PORT = 65535
_ADDRESS = re.compile(
    r"(?P<host>\[(?=.*:.*:)[0-9A-Fa-f:.]+\]|[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?)"
    r"(:(?P<port>[0-9]{1,5}))?",
    re.ASCII,
)  # an IPv6 address has two colons or more


def tf_config(addresses: Mapping[Task, str], task: Task) -> dict[str, Any]:
    """Return TF_CONFIG as TensorFlow reads it: the cluster without evaluators, and the task.

    `addresses` are the ``host:port`` of every task.
    """
    cluster = {
        kind: hosts for kind, hosts in _hosts_by_type(addresses).items() if kind != "evaluator"
    }
    return {"cluster": cluster, "task": {"type": task.type, "index": task.index}}


def cluster_spec(addresses: Mapping[Task, str], task: Task) -> dict[str, Any]:
    """Return CLUSTER_SPEC, which lists every replica by its worker pool."""
    cluster = {WORKER_POOLS[kind]: hosts for kind, hosts in _hosts_by_type(addresses).items()}
    return {
        "cluster": cluster,
        "environment": "cloud",
        "task": {"type": WORKER_POOLS[task.type], "index": task.index},
        "job": {},
    }


def replica_environment(
    addresses: Mapping[Task, str], task: Task, *, job_id: str, job_dir: str | None
) -> dict[str, str]:
    """Return the variables that Vertex AI sets for a replica.

    TF_CONFIG is set only for a job with more than one replica. `addresses` are the ``host:port`` of
    every task; a `job_dir` of None leaves out the variables with folders.
    """
    environment = {
        "CLUSTER_SPEC": json.dumps(cluster_spec(addresses, task)),
        "CLOUD_ML_JOB_ID": job_id,
        "CLOUD_ML_PROJECT_ID": _PROJECT_NUMBER,
    }
    if len(addresses) > 1:
        config = tf_config(addresses, task) | {"environment": "cloud", "job": {}}
        config["task"]["cloud"] = job_id
        environment["TF_CONFIG"] = json.dumps(config)
    if job_dir is not None:
        folder = job_dir.rstrip("/")
        environment |= {
            "AIP_MODEL_DIR": f"{folder}/model/",
            "AIP_CHECKPOINT_DIR": f"{folder}/checkpoints/",
            "AIP_TENSORBOARD_LOG_DIR": f"{folder}/logs/",
        }
    return environment


def parse_hosts(text: str) -> dict[Task, str]:
    """Return the address of each task of ``a:2222,b,[::1]:2222``: the chief, then the workers.

    Spaces and newlines separate hosts, too, as in the variables of other launchers.
    """
    words = text.split(",") if "," in text else text.split() or [text]
    addresses = [_address(word.strip()) for word in words]
    duplicate = next((each for each in addresses if addresses.count(each) > 1), None)
    if duplicate:
        raise UsageError(f"--hosts: duplicate host {duplicate}; each task needs its own address")
    chief, *workers = addresses
    tasks = {Task("chief"): chief}
    return tasks | {Task("worker", index): host for index, host in enumerate(workers)}


def _hosts_by_type(addresses: Mapping[Task, str]) -> dict[TaskType, list[str]]:
    in_order = sorted(addresses, key=lambda task: task.index)
    hosts = {
        kind: [addresses[task] for task in in_order if task.type == kind] for kind in TASK_TYPES
    }
    return {kind: named for kind, named in hosts.items() if named}


def _address(word: str) -> str:
    match = _ADDRESS.fullmatch(word)
    port = int(match["port"] or _PORT) if match else 0
    if match is None or not 0 < port <= _HIGHEST_PORT:
        raise UsageError(
            f"--hosts: {word!r} is not a host with a port from 1 to {_HIGHEST_PORT}, such as "
            "a:2222, b or [::1]:2222"
        )
    return f"{match['host']}:{port}"
