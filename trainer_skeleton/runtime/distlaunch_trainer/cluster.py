"""Which task this process is, and what the tasks agree on.

A cluster comes as the environment variable ``TF_CONFIG``, as Google's training services and
TensorFlow write it: ``{"cluster": {"chief": [...], "worker": [...]}, "task": {"type": ..., "index":
...}}``. Without it there is one task, the chief.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from .errors import ClusterError
from .rendezvous import Rendezvous

_TRAINING_TYPES = ("chief", "master", "worker")
_TYPES = (*_TRAINING_TYPES, "ps", "evaluator")
_NOTICE_EVERY_SECONDS = 30.0
_LAST_WORDS_SECONDS = 3.0
_LONGEST_PEER_TIMEOUT_SECONDS = 1e6
_CLOUD_PEER_TIMEOUT_SECONDS = 1800.0
_PACK_BYTES = 4 << 20
_ADDRESS = re.compile(r"[^\s:]+:[0-9]+|\[[0-9A-Fa-f:.]+\]:[0-9]+")


@dataclass(frozen=True)
class Role:
    """The place of this process in the cluster.

    Attributes
    ----------
    name
        The task: ``chief``, ``worker:0``, ``ps:0``, ``evaluator:0``. A ``master`` of old AI
        Platform files is a ``chief``.
    peers
        Names of all training tasks, in the order of their ranks.
    addresses
        ``host:port`` of each of ``peers``; empty where there is no cluster.
    parameter_servers
        ``host:port`` of each parameter server.
    """

    name: str = "chief"
    peers: tuple[str, ...] = ("chief",)
    addresses: tuple[str, ...] = ()
    parameter_servers: tuple[str, ...] = ()

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


def role_from(environ: Mapping[str, str]) -> Role:
    """Read this process's role from ``TF_CONFIG`` in ``environ``.

    Raises
    ------
    ClusterError
        If ``TF_CONFIG`` is not JSON of the documented shape.
    """
    text = environ.get("TF_CONFIG", "").strip()
    if not text:
        return Role()
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ClusterError(f"TF_CONFIG is not JSON: {error}; it begins {text[:40]!r}") from None
    except RecursionError:
        raise ClusterError(f"TF_CONFIG is nested too deeply; it begins {text[:40]!r}") from None
    cluster, task = _sections(config)
    if not cluster:
        return Role()
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
    _check_addresses_differ([address for pool in cluster.values() for address in pool])
    return {kind: tuple(addresses) for kind, addresses in cluster.items()}, config.get("task")


def _check_addresses_differ(addresses: list[str]) -> None:
    for address in addresses:
        if addresses.count(address) > 1:
            raise ClusterError(f"TF_CONFIG gives {address} to more than one task")


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


def _words(value: np.ndarray) -> int:
    """Return how many numbers of 64 bits hold an array."""
    return -(-value.nbytes // 8)


def _packs(values: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Yield consecutive arrays of one collective, or an array that takes several."""
    pack: list[np.ndarray] = []
    size = 0
    for value in values:
        if pack and size + value.nbytes > _PACK_BYTES:
            yield pack
            pack, size = [], 0
        pack.append(value)
        size += value.nbytes
    if pack:
        yield pack


def peer_timeout(environ: Mapping[str, str]) -> float:
    """Return the seconds to wait for peers."""
    text = environ.get("DISTLAUNCH_PEER_TIMEOUT") or str(_CLOUD_PEER_TIMEOUT_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_PEER_TIMEOUT_SECONDS:
        raise ClusterError(
            f"DISTLAUNCH_PEER_TIMEOUT must be a number of seconds above 0, got {text!r}"
        )
    return seconds


class PeerWatchdog:
    """Names the peers that have not come, and ends this process after a limit.

    TensorFlow waits for them in a call that lets no other Python thread run and that no exception
    or signal handler can leave. So another process reports it (``peer_watchdog.py``), and the
    interpreter's own timer, which needs no Python to run, ends this one with 1. The other process
    also ends this one when SIGTERM is pending.
    """

    def __init__(self, role: Role) -> None:
        limit = peer_timeout(os.environ)
        others = dict(zip(role.peers, role.addresses, strict=True))
        del others[role.name]
        self._seconds = limit + _LAST_WORDS_SECONDS
        self._order = json.dumps(
            {
                "name": role.name,
                "others": others,
                "limit": limit,
                "notice_every": _NOTICE_EVERY_SECONDS,
                "task": os.getpid(),
            }
        )

    def __enter__(self) -> None:
        program = Path(__file__).with_name("peer_watchdog.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(program), self._order], stdin=subprocess.PIPE
        )
        self._unread = Path(os.devnull).open("wb")
        faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._unread)

    def __exit__(self, *_: object) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._unread.close()
        self._process.communicate()


class Cluster:
    """The tasks of a cluster, where they must know or do the same.

    Every method is a collective: all tasks call it, in the same order.
    """

    def __init__(self, role: Role, strategy: tf.distribute.Strategy) -> None:
        self.role = role
        self.strategy = strategy
        self.rendezvous = Rendezvous(role)
        self.replicas = int(strategy.num_replicas_in_sync)
        self.local_replicas = self.replicas // role.num_workers
        # XLA compiles each step of a TPU for one shape of its batch.
        self.needs_static_shapes = isinstance(strategy, tf.distribute.TPUStrategy)
        # Each is traced once, for vectors of any length.
        self._sums = {
            dtype: tf.function(
                self._sum_over_tasks, [tf.TensorSpec([None], dtype)], autograph=False
            )
            for dtype in ("int64", "float64")
        }

    @property
    def replica_ids(self) -> range:
        """The replicas of this task, numbered over the whole cluster."""
        first = self.role.rank * self.local_replicas
        return range(first, first + self.local_replicas)

    def all_reduce_sum(self, value: np.ndarray) -> np.ndarray:
        """Return the sum of all tasks' arrays of one shape, of int64 or float64."""
        if self.role.num_workers == 1 or not value.size:  # of no numbers, TensorFlow crashes
            return value
        summed = self._sums[value.dtype.name](tf.convert_to_tensor(value.reshape(-1)))
        return np.asarray(summed).reshape(value.shape)

    def all_gather(self, value: np.ndarray) -> list[np.ndarray]:
        """Return the vectors (int64, of any length) of all tasks, in the order of their ranks."""
        lengths = self.all_reduce_sum(self._own_row(np.array(len(value), np.int64)))
        padded = np.zeros(int(lengths.max(initial=0)), np.int64)
        padded[: len(value)] = value
        rows = self.all_reduce_sum(self._own_row(padded))
        return [row[:length] for row, length in zip(rows, lengths, strict=True)]

    def broadcast(self, value: np.ndarray) -> np.ndarray:
        """Return the chief's array; the other tasks' arrays give its shape and type only."""
        return self.broadcast_all([value])[0]

    def broadcast_all(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the chief's arrays, bit by bit; those of other tasks give shapes and types only.

        One collective transfers 4 MiB of them; larger ones are slower.
        """
        if self.role.num_workers == 1:
            return list(values)
        is_given = self.role.is_chief
        return [array for pack in _packs(values) for array in self._sum_bits(pack, is_given)]

    def merge(self, value: np.ndarray) -> np.ndarray:
        """Return an array of which each task has some numbers, and zeros for all others."""
        return self._sum_bits([value], is_given=True)[0]

    def _sum_bits(self, values: Sequence[np.ndarray], is_given: bool) -> list[np.ndarray]:
        """Return arrays whose bits are the sums of those of the tasks that give any."""
        ends = np.cumsum([_words(value) for value in values])
        sent = np.zeros(ends[-1], np.int64)
        parts = [part.view(np.uint8) for part in np.split(sent, ends[:-1])]
        if is_given:
            for part, value in zip(parts, values, strict=True):
                part[: value.nbytes] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        pieces = [
            sent[n : n + _PACK_BYTES // 8] for n in range(0, max(len(sent), 1), _PACK_BYTES // 8)
        ]
        summed = np.concatenate([self.all_reduce_sum(piece) for piece in pieces])
        received = np.split(summed, ends[:-1])
        return [
            part.view(np.uint8)[: value.nbytes].view(value.dtype).reshape(value.shape)
            for part, value in zip(received, values, strict=True)
        ]

    def broadcast_text(self, text: str) -> str:
        """Return the chief's text."""
        encoded = np.frombuffer(text.encode(), np.uint8)
        length = int(self.broadcast(np.array([len(encoded)], np.int64))[0])
        mine = encoded if self.role.is_chief else np.zeros(length, np.uint8)
        return self.broadcast(mine).tobytes().decode()

    def all_equal(self, value: int) -> bool:
        """Return whether all tasks hold the same number."""
        return bool((self.all_reduce_sum(self._own_row(np.array(value, np.int64))) == value).all())

    def barrier(self) -> None:
        """Return when every task has come here."""
        self.all_reduce_sum(np.zeros(1, np.int64))

    def _own_row(self, value: np.ndarray) -> np.ndarray:
        """Return zeros for every task, with ``value`` in this task's row."""
        table = np.zeros((self.role.num_workers, *value.shape), value.dtype)
        table[self.role.rank] = value
        return table

    def _sum_over_tasks(self, value: tf.Tensor) -> tf.Tensor:
        def share(tensor: tf.Tensor) -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            first = context.replica_id_in_sync_group % self.local_replicas == 0
            share = tf.where(first, tensor, tf.zeros_like(tensor))
            return context.all_reduce(tf.distribute.ReduceOp.SUM, share)

        summed = self.strategy.run(share, args=(value,))
        return self.strategy.experimental_local_results(summed)[0]
