"""The variables of a task, as on Vertex AI, from those of Slurm."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from distlaunch_trainer.errors import ClusterError
from distlaunch_trainer.slurm.hosts import expand_hosts, tasks_per_node

CLUSTER = "DISTLAUNCH_CLUSTER"
"""The variable with the number of tasks of each type, as JSON; default: a chief and workers."""
GPUS = "DISTLAUNCH_GPUS"
"""The variable with the number of GPUs of a task of each type, as JSON."""
JOB_DIR = "DISTLAUNCH_JOB_DIR"
"""The variable with the folder that the program writes to."""
LAUNCH = "DISTLAUNCH_LAUNCH_ID"
"""The variable with the id of the launch."""

_TYPES = ("chief", "worker", "ps", "evaluator")
_POOLS = {kind: f"workerpool{number}" for number, kind in enumerate(_TYPES)}
# Below the range of outgoing connections of Linux (ip_local_port_range).
_FIRST_PORT, _PORTS = 10_000, 20_000
_STRIDE = 97  # ports from one job's to the next one's, so that jobs on a node have different ones


def task_names(cluster: Mapping[str, int]) -> list[str]:
    """Return the names of a cluster's tasks in the order of their numbers in Slurm."""
    numbered = [(kind, index) for kind in _TYPES for index in range(cluster.get(kind, 0))]
    return [kind if kind == "chief" else f"{kind}:{index}" for kind, index in numbered]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a replica on Vertex AI for this task of a Slurm step.

    TF_CONFIG is left out for a step of one task, as there. ClusterError is raised if this is no
    task of a step, or Slurm's variables do not fit the cluster.
    """
    cluster, name, addresses = _addresses(environ)
    kind, _, index = name.partition(":")
    hosts: dict[str, list[str]] = {}
    for task, address in addresses.items():
        hosts.setdefault(task.partition(":")[0], []).append(address)
    job_id = environ.get(LAUNCH) or f"slurm-{environ.get('SLURM_JOB_ID', '0')}"
    task = {"type": kind, "index": int(index or 0)}
    spec = {
        "cluster": {_POOLS[each]: listed for each, listed in hosts.items()},
        "environment": "cloud",
        "task": task | {"type": _POOLS[kind]},
        "job": {},
    }
    variables = {
        "CLUSTER_SPEC": json.dumps(spec),
        "CLOUD_ML_JOB_ID": job_id,
        "CLOUD_ML_PROJECT_ID": "0",
    }
    if sum(cluster.values()) > 1:
        members = {each: listed for each, listed in hosts.items() if each != "evaluator"}
        config = {"cluster": members, "task": task | {"cloud": job_id}}
        variables["TF_CONFIG"] = json.dumps(config | {"environment": "cloud", "job": {}})
    if folder := environ.get(JOB_DIR, "").rstrip("/"):
        variables |= {
            "AIP_MODEL_DIR": f"{folder}/model/",
            "AIP_CHECKPOINT_DIR": f"{folder}/checkpoints/",
            "AIP_TENSORBOARD_LOG_DIR": f"{folder}/logs/",
        }
    gpus = json.loads(environ.get(GPUS) or "{}")
    if gpus.get(kind):
        variables["DISTLAUNCH_EXPECTED_GPUS"] = str(gpus[kind])
    elif any(gpus.values()):  # all tasks of a step have as many: this one leaves them idle
        variables["CUDA_VISIBLE_DEVICES"] = "-1"
    return variables


def task_name(environ: Mapping[str, str]) -> str:
    """Return the name of this task, such as ``worker:0``; ClusterError as in `environment`."""
    return _addresses(environ)[1]


def _addresses(environ: Mapping[str, str]) -> tuple[dict[str, int], str, dict[str, str]]:
    """Return the cluster, the name of this task, and the address of each task."""
    try:
        rank = int(environ["SLURM_PROCID"])
        nodes = expand_hosts(environ.get("SLURM_STEP_NODELIST") or environ["SLURM_JOB_NODELIST"])
        per_node = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ["SLURM_TASKS_PER_NODE"]
        counts = tasks_per_node(per_node)
        number = int(environ.get("SLURM_JOB_ID", "0"))
    except (KeyError, ValueError) as problem:
        raise ClusterError(
            f"this is no task of a Slurm step ({problem} is missing or no number): start it with "
            "srun"
        ) from None
    if len(nodes) != len(counts):
        raise ClusterError(f"Slurm lists {len(nodes)} nodes, and tasks of {len(counts)}")
    # By default srun has tasks take turns (cyclic) where each has a node of its own.
    distribution = environ.get("SLURM_DISTRIBUTION") or "block"
    if max(counts) > 1 and not distribution.startswith("block"):
        raise ClusterError(
            f"srun distributes the tasks by {distribution}: pass --distribution=block to srun"
        )
    hosts = [node for node, count in zip(nodes, counts, strict=True) for _ in range(count)]
    default = {"chief": 1, "worker": len(hosts) - 1}
    cluster = json.loads(environ.get(CLUSTER) or "null") or default
    names = task_names(cluster)
    if len(names) != len(hosts):
        raise ClusterError(
            f"the job has {len(names)} tasks, and srun started {len(hosts)}: pass "
            f"--ntasks={len(names)}"
        )
    ports = [_FIRST_PORT + (number * _STRIDE + each) % _PORTS for each in range(len(hosts))]
    pairs = (f"{host}:{port}" for host, port in zip(hosts, ports, strict=True))
    return cluster, names[rank], dict(zip(names, pairs, strict=True))


def export_lines(variables: Mapping[str, str]) -> list[str]:
    """Return the lines that set variables in a shell."""
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
