"""Which ``tf.distribute`` strategy a task trains under: chosen from cluster and devices, and made.

TensorFlow's guide describes them: https://www.tensorflow.org/guide/distributed_training.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.values import DistributedVariable

from distlaunch_trainer.errors import ClusterError, DeviceError, ModelError, summarize
from distlaunch_trainer.options import Settings
from distlaunch_trainer.task.messages import counted

from .peers import watch_peers
from .rendezvous import Rendezvous
from .role import Role
from .virtual_devices import as_worker_devices, replica_devices
from .wire_types import broadcast_initial_values

_CROSS_DEVICE_OPS: dict[str, Callable[[], tf.distribute.CrossDeviceOps]] = {
    "nccl": tf.distribute.NcclAllReduce,
    "hierarchical-copy": tf.distribute.HierarchicalCopyAllReduce,
    "reduction-to-one": tf.distribute.ReductionToOneDevice,
}


def connect(role: Role, settings: Settings | None = None) -> tf.distribute.Strategy:
    """Make the strategy for ``role``; a cluster waits until every peer has come.

    ClusterError is raised if the settings ``strategy``, ``cross_device_ops`` or ``tpu`` do not fit
    the cluster or its devices, the task is none that trains, or the cluster cannot be formed.
    """
    _read_variables_as_numbers()
    settings = settings or Settings()
    devices = replica_devices()
    name = choose(role, settings.strategy, devices)
    if name == "parameter-server":
        raise ClusterError(
            "parameter servers are for trainer.task: this program trains without them, take the "
            "pool parameter_servers out of the job"
        )
    if settings.cross_device_ops and name != "mirrored":
        raise ClusterError(f"--cross-device-ops is for the mirrored strategy, and this is {name}")
    if name == "tpu":
        return _tpu(settings.tpu)
    if name == "mirrored":
        return tf.distribute.MirroredStrategy(
            devices, _cross_device_ops(settings.cross_device_ops, devices)
        )
    if name == "one-device":
        # Where there is but one, TensorFlow's default strategy is the same and has no overhead.
        is_requested = settings.strategy is not None or len(devices) > 1
        return (
            tf.distribute.OneDeviceStrategy(devices[0])
            if is_requested
            else tf.distribute.get_strategy()
        )
    return _multi_worker(role, devices)


def choose(role: Role, requested: str | None, devices: Sequence[str]) -> str:
    """Return the strategy for a task and its devices that train, named as ``--strategy`` is."""
    name = requested or _fitting(role, devices)
    several = f"TF_CONFIG names {role.num_workers} training tasks ({', '.join(role.peers)})"
    if name == "parameter-server":
        if not role.parameter_servers:
            raise ClusterError(
                "--strategy parameter-server: the cluster has no parameter servers: add the pool "
                "parameter_servers to the cluster of distlaunch.yaml"
            )
        return name
    if role.rank < 0 or role.parameter_servers:
        outside = role.name if role.rank < 0 else "ps:0"
        raise ClusterError(
            f"the strategy {name} has no part for {outside}: take the pool out of the job"
        )
    if name != "multi-worker" and role.num_workers > 1:
        raise ClusterError(
            f"--strategy {name} trains on one machine, and {several}: use multi-worker"
        )
    if name == "mirrored" and len(devices) < 2:
        raise ClusterError(
            f"--strategy mirrored needs several devices, and this task has {', '.join(devices)}: "
            "use one-device, or simulate them with distlaunch local --devices 4"
        )
    return name


def describe(strategy: tf.distribute.Strategy, role: Role) -> str:
    """Return a line such as ``strategy: multi-worker, 4 replicas on 2 tasks``."""
    names = {
        tf.distribute.MultiWorkerMirroredStrategy: "multi-worker",
        tf.distribute.MirroredStrategy: "mirrored",
        tf.distribute.ParameterServerStrategy: "parameter-server",
        tf.distribute.TPUStrategy: "tpu",
    }
    name = next((name for kind, name in names.items() if isinstance(strategy, kind)), "one-device")
    replicas = int(strategy.num_replicas_in_sync)
    tasks = f" on {role.num_workers} tasks" if role.num_workers > 1 else ""
    return f"strategy: {name}, {counted(replicas, 'replica')}{tasks}"


def check_same_strategy(model: Any, strategy: tf.distribute.Strategy, call: str) -> None:
    """Refuse a model or a thread without the cluster's strategy, if that has several replicas.

    Each task would train by itself. `call` is what the model is used for, such as ``fit()``.
    """
    if strategy.num_replicas_in_sync == 1:
        return
    weights = model.trainable_variables
    other = next((w for w in weights if _strategy_of(w.value) is not strategy), None)
    if other is not None:
        raise ModelError(
            f"{call} of {model.name}: its weight {other.path} was created without the strategy of "
            f"the cluster, so every task would train it alone: create the model in the main "
            f"thread, after the cluster is formed (in create_model(), or in the script itself)"
        )
    if model.distribute_strategy is not strategy:
        thread = threading.current_thread().name
        raise ModelError(
            f"{call} of {model.name}: {type(model.distribute_strategy).__name__} of the thread "
            f"{thread} is not the strategy of the cluster, so every task would train alone: call "
            f"it in the main thread"
        )


def _read_variables_as_numbers() -> None:
    """Let ``float()``, ``int()`` and ``complex()`` read distributed variables, as they read others.

    ``float(model.optimizer.learning_rate)`` is in many callbacks.
    """
    DistributedVariable.__float__ = lambda variable: float(variable.numpy())
    DistributedVariable.__int__ = lambda variable: int(variable.numpy())
    DistributedVariable.__complex__ = lambda variable: complex(variable.numpy())


def _strategy_of(variable: Any) -> tf.distribute.Strategy | None:
    return getattr(variable, "distribute_strategy", None)


def _fitting(role: Role, devices: Sequence[str]) -> str:
    """Return the strategy for a cluster and its devices."""
    if role.parameter_servers:
        return "parameter-server"
    if role.num_workers > 1:
        return "multi-worker"
    return "mirrored" if len(devices) > 1 else "one-device"


def _cross_device_ops(name: str | None, devices: Sequence[str]) -> tf.distribute.CrossDeviceOps:
    """Return how MirroredStrategy reduces, None for TensorFlow's choice."""
    if name is None:
        return None
    if name == "nccl" and not all(device.startswith("GPU") for device in devices):
        raise ClusterError("--cross-device-ops nccl needs GPUs, and this task trains on CPUs")
    return _CROSS_DEVICE_OPS[name]()


def _multi_worker(role: Role, devices: list[str]) -> tf.distribute.Strategy:
    """Form the cluster of MultiWorkerMirroredStrategy."""
    gpus = tf.config.list_physical_devices("GPU")
    implementation = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=implementation.NCCL if gpus else implementation.AUTO
    )
    if role.num_workers == 1:
        return tf.distribute.MultiWorkerMirroredStrategy(
            tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec({})), options
        )
    broadcast_initial_values()
    # gRPC would send what tasks exchange to http_proxy.
    os.environ.update(without_proxy(role, os.environ))
    with watch_peers(role), as_worker_devices(devices):
        try:
            strategy = tf.distribute.MultiWorkerMirroredStrategy(_resolver(role), options)
        except (tf.errors.OpError, RuntimeError, ValueError) as error:
            raise ClusterError(
                f"{role.name} could not join the cluster: {summarize(error)}"
            ) from error
    _check_same_devices(role, devices)
    return strategy


def _check_same_devices(role: Role, devices: list[str]) -> None:
    """Refuse tasks with different numbers of replicas, whose first collective would not end."""
    of_tasks = Rendezvous(role).exchange("devices", devices, "to join the cluster")
    if any(other != devices for other in of_tasks):
        kind = "GPU" if any("GPU:0" in other for other in of_tasks) else "CPU"
        counts = [sum(device.startswith(kind) for device in other) for other in of_tasks]
        pairs = zip(role.peers, counts, strict=True)
        numbers = ", ".join(f"{peer} has {count}" for peer, count in pairs)
        raise DeviceError(
            f"the tasks have different numbers of {kind}s ({numbers}): give all of them machines "
            "with the same number of accelerators"
        )


def _tpu(name: str) -> tf.distribute.Strategy:
    """Start a TPU: ``local`` for those of this machine, or the name of one."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect(name)
        return tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"--strategy tpu: no TPU {name!r} can be started: {summarize(error)}; a TPU needs "
            "tensorflow-tpu in requirements.txt and a machine with one"
        ) from error


def without_proxy(role: Role, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which this task reaches its peers without a proxy.

    gRPC reads no_grpc_proxy, or no_proxy if that is not set; other clients read no_proxy, or
    NO_PROXY if that is not set. A '*' means every host only if it is alone.
    """
    addresses = role.addresses + role.parameter_servers
    peers = [address.rpartition(":")[0].strip("[]") for address in addresses]

    def with_peers(hosts: str) -> str:
        given = [host.strip() for host in hosts.split(",") if host.strip()]
        return ",".join(dict.fromkeys([*given, *peers]))

    direct = environ.get("no_proxy", environ.get("NO_PROXY", ""))
    return {
        "no_proxy": direct if direct.strip() == "*" else with_peers(direct),
        "no_grpc_proxy": with_peers(environ.get("no_grpc_proxy", direct)),
    }


def _resolver(role: Role) -> tf.distribute.cluster_resolver.ClusterResolver:
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(role.addresses_by_type()),
        task_type=role.type,
        task_id=int(role.name.partition(":")[2] or 0),
        rpc_layer="grpc",
    )
