"""Sums over all replicas, computed in a replica's part of a step."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

# All-reduces of this size overlap the rest of the backward pass; smaller ones cost more latency.
_BYTES_PER_PACK = 32 << 20

_tracing = threading.local()  # a replica is traced in a thread of its own


class CollectiveInXlaError(Exception):
    """A function that XLA should compile exchanges values with other replicas."""


@contextmanager
def no_collectives() -> Iterator[None]:
    """Raise CollectiveInXlaError where an all-reduce is traced in here."""
    _tracing.in_xla = True
    try:
        yield
    finally:
        _tracing.in_xla = False


def sum_over_replicas(values: list[tf.Tensor]) -> list[tf.Tensor]:
    """Return sums, all-reduced in packs of values of one dtype.

    The last values are in the first pack: backpropagation computes their gradients first. Values
    of unknown shape make one pack of all.

    Raises
    ------
    CollectiveInXlaError
        Inside of :func:`no_collectives`.
    """
    if getattr(_tracing, "in_xla", False):
        raise CollectiveInXlaError
    context = tf.distribute.get_replica_context()
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=_BYTES_PER_PACK)
    by_type: dict[tf.DType, list[int]] = {}
    for number, value in enumerate(values):
        by_type.setdefault(value.dtype, []).append(number)
    sums = list(values)
    for numbers in by_type.values():
        own = [values[n] for n in numbers]
        reduced = context.all_reduce(tf.distribute.ReduceOp.SUM, own, options)
        for number, value in zip(numbers, reduced, strict=True):
            sums[number] = value
    return sums


def gather_rows(values: list[tf.IndexedSlices]) -> list[tf.IndexedSlices]:
    """Return the rows of all replicas, one after the other, as sparse gradients are summed.

    Replicas may have different numbers of rows. TensorFlow requires that the numbers are the same
    in all steps of one execution.

    Raises
    ------
    CollectiveInXlaError
        Inside of :func:`no_collectives`.
    """
    if getattr(_tracing, "in_xla", False):
        raise CollectiveInXlaError
    context = tf.distribute.get_replica_context()
    return [context.all_reduce(tf.distribute.ReduceOp.SUM, value) for value in values]
