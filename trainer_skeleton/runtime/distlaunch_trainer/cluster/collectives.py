"""What the tasks of a cluster agree on and exchange."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from .rendezvous import Rendezvous
from .role import Role

_PACK_BYTES = 4 << 20


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

    def all_gather(self, value: np.ndarray) -> np.ndarray:
        """Return all tasks' arrays of one shape, of int64 or float64, stacked by their ranks."""
        table = np.zeros((self.role.num_workers, *value.shape), value.dtype)
        table[self.role.rank] = value
        return self.all_reduce_sum(table)

    def all_equal(self, value: int) -> bool:
        """Return whether all tasks hold the same number."""
        return bool((self.all_gather(np.array(value, np.int64)) == value).all())

    def barrier(self) -> None:
        """Return when every task has come here."""
        self.all_reduce_sum(np.zeros(1, np.int64))

    def broadcast_all(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the chief's arrays, bit by bit; those of other tasks give shapes and types only.

        One collective transfers 4 MiB of them; larger ones are slower.
        """
        if self.role.num_workers == 1:
            return list(values)
        return [array for pack in _packs(values) for array in self._of_chief(pack)]

    def broadcast_named(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the chief's arrays by name; other tasks need not know any of them."""
        own = [(name, value.shape, value.dtype.name) for name, value in values.items()]
        of_chief = json.loads(self.broadcast_bytes(json.dumps(own).encode()))
        arrays = list(values.values())
        if not self.role.is_chief:
            arrays = [np.zeros(shape, dtype) for _, shape, dtype in of_chief]
        names = (name for name, *_ in of_chief)
        return dict(zip(names, self.broadcast_all(arrays), strict=True))

    def broadcast_bytes(self, data: bytes) -> bytes:
        """Return the chief's bytes."""
        size = int(self.all_gather(np.array(len(data), np.int64))[0])
        own = data if self.role.is_chief else bytes(size)
        return self.broadcast_all([np.frombuffer(own, np.uint8)])[0].tobytes()

    def _of_chief(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the chief's arrays, as sums of all tasks' bits, of which other tasks give none."""
        ends = np.cumsum([value.nbytes for value in values])
        sent = np.zeros(-(-ends[-1] // 8), np.int64)
        if self.role.is_chief:
            arrays = [np.ravel(value).view(np.uint8) for value in values]
            np.concatenate(arrays, out=sent.view(np.uint8)[: ends[-1]])
        most = _PACK_BYTES // 8
        pieces = np.split(sent, range(most, len(sent), most))
        summed = np.concatenate([self.all_reduce_sum(piece) for piece in pieces])
        parts = np.split(summed.view(np.uint8), ends)[: len(values)]
        # What is not aligned is copied.
        return [
            np.require(part.view(value.dtype), requirements="A").reshape(value.shape)
            for part, value in zip(parts, values, strict=True)
        ]

    def _sum_over_tasks(self, value: tf.Tensor) -> tf.Tensor:
        def share(tensor: tf.Tensor) -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            first = context.replica_id_in_sync_group % self.local_replicas == 0
            share = tf.where(first, tensor, tf.zeros_like(tensor))
            return context.all_reduce(tf.distribute.ReduceOp.SUM, share)

        summed = self.strategy.run(share, args=(value,))
        return self.strategy.experimental_local_results(summed)[0]
