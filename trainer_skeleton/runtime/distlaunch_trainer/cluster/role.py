"""Which task this process is.

A cluster comes as the environment variable ``TF_CONFIG``, as Google's training services and
TensorFlow write it: ``{"cluster": {"chief": [...], "worker": [...]}, "task": {"type": ..., "index":
...}}``. Without it there is one task, the chief.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distlaunch_trainer.errors import ClusterError

_TRAINING_TYPES = ("chief", "master", "worker")
_TYPES = (*_TRAINING_TYPES, "ps", "evaluator")
_ADDRESS = re.compile(r"[^\s:]+:[0-9]+|\[[0-9A-Fa-f:.]+\]:[0-9]+")


@dataclass(frozen=True)
class Role:
    """The place of this process in the cluster."""

    # chief, worker:0, ps:0 or evaluator:0; a master of old AI Platform files is a chief.
    name: str = "chief"
    peers: tuple[str, ...] = ("chief",)  # all training tasks, in the order of their ranks
    addresses: tuple[str, ...] = ()  # host:port of each of them; empty without a cluster
    parameter_servers: tuple[str, ...] = ()  # host:port of each

    @property
    def rank(self) -> int:
        """The place of this task among ``peers``, or -1 where it does not train."""
        return self.peers.index(self.name) if self.name in self.peers else -1

    @property
    def num_workers(self) -> int:
        """Number of training tasks."""
        return len(self.peers)

    @property
    def is_chief(self) -> bool:
        """Whether this task saves and reports for all: rank 0."""
        return self.rank == 0

    @property
    def type(self) -> str:
        """The task's type: ``chief``, ``worker``, ``ps`` or ``evaluator``."""
        return self.name.partition(":")[0]

    def addresses_by_type(self) -> dict[str, list[str]]:
        """Return the addresses of ``peers`` by their type, as ``ClusterSpec`` takes them."""
        by_type: dict[str, list[str]] = {}
        for peer, address in zip(self.peers, self.addresses, strict=True):
            by_type.setdefault(peer.partition(":")[0], []).append(address)
        return by_type


def role_from(environ: Mapping[str, str]) -> Role:
    """Read this process's role from ``TF_CONFIG``; ClusterError is raised if that is malformed."""
    text = environ.get("TF_CONFIG", "").strip()
    if not text:
        return Role()
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ClusterError(f"TF_CONFIG is not JSON: {error}; it begins {text[:40]!r}") from None
    cluster, task = _sections(config)
    if not cluster:
        return Role()
    # AI Platform's TF_CONFIG has a master, unless its file sets useChiefInTfConfig.
    chiefs = cluster.get("chief", ()) + cluster.get("master", ())
    if len(chiefs) > 1:
        raise ClusterError(
            f"TF_CONFIG has {len(chiefs)} chiefs ({', '.join(chiefs)}): it takes one"
        )
    workers = cluster.get("worker", ())
    peers = ("chief",) * len(chiefs) + tuple(f"worker:{index}" for index in range(len(workers)))
    role = Role(_task_name(task), peers, chiefs + workers, cluster.get("ps", ()))
    if role.rank < 0 and role.type in _TRAINING_TYPES:
        raise ClusterError(
            f"TF_CONFIG: this task is {role.name}, and the cluster has {', '.join(peers) or 'none'}"
        )
    return role


def _sections(config: Any) -> tuple[dict[str, tuple[str, ...]], Any]:
    """Return the cluster and the task of a ``TF_CONFIG``, the cluster checked."""
    if not isinstance(config, dict):
        raise ClusterError(f"TF_CONFIG: expected an object, got {type(config).__name__}")
    cluster = config.get("cluster")
    if cluster is None:
        return {}, None
    if not isinstance(cluster, dict):
        raise ClusterError("TF_CONFIG: 'cluster' must map task types to lists of addresses")
    for kind, addresses in cluster.items():
        if kind not in _TYPES:
            raise ClusterError(f"TF_CONFIG: task type {kind!r} is none of {', '.join(_TYPES)}")
        if not isinstance(addresses, list):
            raise ClusterError(f"TF_CONFIG: cluster.{kind} must be a list of 'host:port'")
        for address in addresses:
            if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
                raise ClusterError(f"TF_CONFIG: cluster.{kind}: {address!r} is not 'host:port'")
    count = Counter(address for pool in cluster.values() for address in pool)
    if twice := [address for address in count if count[address] > 1]:
        raise ClusterError(f"TF_CONFIG gives {', '.join(twice)} to more than one task")
    return {kind: tuple(addresses) for kind, addresses in cluster.items()}, config.get("task")


def _task_name(task: Any) -> str:
    if not isinstance(task, dict) or task.get("type") not in _TYPES:
        raise ClusterError(f"TF_CONFIG: task.type must be one of {', '.join(_TYPES)}")
    index = task.get("index", 0)
    if isinstance(index, bool) or not re.fullmatch("[0-9]{1,6}", str(index)):
        raise ClusterError(f"TF_CONFIG: task.index must be a whole number from 0, got {index!r}")
    if task["type"] not in {"chief", "master"}:
        return f"{task['type']}:{int(index)}"
    if int(index):
        raise ClusterError(f"TF_CONFIG: task.index of a {task['type']} must be 0, got {index!r}")
    return "chief"
