"""The environment of one replica, as Vertex AI sets it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from distlaunch.job.model import TASK_TYPES, Task, TaskType

if TYPE_CHECKING:
    from collections.abc import Mapping

# The pool of each type of task in Google's job and in CLUSTER_SPEC.
WORKER_POOLS: dict[TaskType, str] = {
    "chief": "workerpool0",
    "worker": "workerpool1",
    "ps": "workerpool2",
    "evaluator": "workerpool3",
}

EXPECTED_GPUS = "DISTLAUNCH_EXPECTED_GPUS"
"""The variable with the number of GPUs of a task's machine; the trainer stops if it sees fewer."""

# CLOUD_ML_PROJECT_ID is a project's number; no project of Google's has this one.
NO_PROJECT = "0"


def tf_config(addresses: Mapping[Task, str], task: Task) -> dict[str, Any]:
    """Return what TensorFlow reads of TF_CONFIG: the cluster and this task's place in it.

    Parameters
    ----------
    addresses
        ``host:port`` of every task; evaluators are not part of TensorFlow's cluster.
    task
        The task whose TF_CONFIG it is.
    """
    cluster = {
        kind: hosts for kind, hosts in _hosts_by_type(addresses).items() if kind != "evaluator"
    }
    return {"cluster": cluster, "task": {"type": task.type, "index": task.index}}


def cluster_spec(addresses: Mapping[Task, str], task: Task) -> dict[str, Any]:
    """Return CLUSTER_SPEC, which tells of every replica by its worker pool."""
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
    """Return the variables that a replica of a job on Vertex AI finds set.

    TF_CONFIG is there only where the job has more than one replica, the folders only where it has
    a job folder.

    Parameters
    ----------
    addresses
        ``host:port`` of every task of the job.
    task
        The task that this replica is.
    job_id
        The job's id.
    job_dir
        The job's folder, ``gs://…`` or a local path, or None.
    """
    environment = {
        "CLUSTER_SPEC": json.dumps(cluster_spec(addresses, task)),
        "CLOUD_ML_JOB_ID": job_id,
        "CLOUD_ML_PROJECT_ID": NO_PROJECT,
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


def _hosts_by_type(addresses: Mapping[Task, str]) -> dict[TaskType, list[str]]:
    in_order = sorted(addresses, key=lambda task: task.index)
    hosts = {
        kind: [addresses[task] for task in in_order if task.type == kind] for kind in TASK_TYPES
    }
    return {kind: named for kind, named in hosts.items() if named}
