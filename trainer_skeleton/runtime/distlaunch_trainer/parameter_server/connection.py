"""The chief's connection to workers and parameter servers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from distlaunch_trainer.cluster.peers import watch_peers
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.cluster.strategy import without_proxy
from distlaunch_trainer.errors import ClusterError, summarize
from distlaunch_trainer.options import Settings
from distlaunch_trainer.report.audit import is_audited
from distlaunch_trainer.task.addresses import listens
from distlaunch_trainer.task.messages import counted

PROMISES = (
    "parameter servers train asynchronously: weights depend on timing and differ from run to run; "
    "an epoch may see an example twice or never, and a step of a lost worker may run twice"
)
"""What parameter servers do not promise, for the user."""


@dataclass(frozen=True)
class Servers:
    """The workers and parameter servers, as the chief sees them."""

    strategy: tf.distribute.Strategy  # places variables on the servers, runs steps on a worker
    coordinator: Any  # tf.distribute.coordinator.ClusterCoordinator
    role: Role  # the chief's
    workers: Mapping[str, str]  # addresses by name

    @property
    def tasks(self) -> list[str]:
        """The names of all tasks."""
        return list(all_tasks(self.role).peers)

    def lost(self) -> list[str]:
        """Return the names and addresses of the parameter servers that are gone."""
        servers = enumerate(self.role.parameter_servers)
        return [f"ps:{index} ({address})" for index, address in servers if not listens(address)]

    def describe(self) -> str:
        """Return a line such as ``strategy: parameter-server, 2 workers, 1 parameter server``."""
        servers = len(self.role.parameter_servers)
        return (
            f"strategy: parameter-server, {counted(len(self.workers), 'worker')}, "
            f"{counted(servers, 'parameter server')}"
        )


def all_tasks(role: Role) -> Role:
    """Return a role whose peers include the parameter servers."""
    names = tuple(f"ps:{index}" for index in range(len(role.parameter_servers)))
    addresses = role.addresses + role.parameter_servers
    return replace(role, peers=role.peers + names, addresses=addresses)


def cluster_spec(role: Role) -> tf.train.ClusterSpec:
    """Return the cluster for TensorFlow, if it has a chief and a worker."""
    by_type = all_tasks(role).addresses_by_type()
    for kind in ("chief", "worker"):
        if kind not in by_type:
            raise ClusterError(
                f"the cluster has parameter servers and no {kind}: the chief coordinates, and at "
                f"least one worker trains; add one (distlaunch local: --workers 2 or more)"
            )
    return tf.train.ClusterSpec(by_type)


def coordinates(role: Role, settings: Settings) -> bool:
    """Return whether a task is the chief of a cluster that trains with parameter servers."""
    is_requested = settings.strategy in (None, "parameter-server")
    return bool(role.parameter_servers) and role.type == "chief" and is_requested


def _check_options(settings: Settings) -> None:
    refused = {
        "--cross-device-ops": settings.cross_device_ops,
        "--sync-batch-norm": settings.sync_batch_norm,
        "--shard-policy": settings.shard_policy,
    }
    for name, is_set in refused.items():
        if is_set:
            raise ClusterError(
                f"{name} is for workers that train in step, and with parameter servers each trains "
                f"by itself: leave {name} out"
            )
    if settings.cache:
        raise ClusterError(
            "--cache keeps examples in the task that opens the data, the chief, and with parameter "
            "servers the workers read them: leave --cache out, or use .cache() of a tf.data.Dataset"
        )
    if is_audited():
        raise ClusterError(
            "an audit finds what is trained on other than once per epoch, and parameter servers "
            "do not promise that: leave --audit out"
        )


def prepare_environment(role: Role) -> None:
    """Set the variables that TensorFlow's servers read as they start."""
    # So that lost servers are reported, by TensorFlow's tutorial on parameter servers.
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    os.environ.update(without_proxy(role, os.environ))
    # A server with fewer threads than calls that wait for each other would wait for ever.
    least = len(all_tasks(role).peers) + 2
    wanted = os.environ.get("TF_NUM_INTEROP_THREADS") or str(os.cpu_count() or 1)
    if not wanted.isdecimal() or int(wanted) < least:
        os.environ["TF_NUM_INTEROP_THREADS"] = str(least)


def connect_to_servers(role: Role, settings: Settings) -> Servers:
    """Connect the chief to all workers and parameter servers, waiting for them."""
    _check_options(settings)
    cluster = cluster_spec(role)
    prepare_environment(role)
    if not settings.debug:
        tf.get_logger().setLevel("CRITICAL")  # what a lost server means is reported in one line
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="chief", task_id=0, rpc_layer="grpc"
    )
    with watch_peers(all_tasks(role)):
        try:
            strategy = tf.distribute.ParameterServerStrategy(resolver)
            coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        except (tf.errors.OpError, RuntimeError, ValueError) as error:
            raise ClusterError(
                f"{role.name} could not join the cluster: {summarize(error)}"
            ) from error
    if strategy.num_replicas_in_sync > 1:
        raise ClusterError(
            f"each worker has {strategy.num_replicas_in_sync} GPUs, and with parameter servers it "
            "uses one: use more workers with one GPU each"
        )
    peers = zip(role.peers, role.addresses, strict=True)
    workers = {peer: address for peer, address in peers if peer.startswith("worker")}
    return Servers(strategy, coordinator, role, workers)
