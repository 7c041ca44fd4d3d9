"""The rows of a global batch on each of its replicas, for what is no mean over its rows."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from distlaunch_trainer.errors import ModelError

from . import step_context
from .all_reduce import replica_id, sum_over_replicas
from .step_context import StepRows

# Exchanged as float32, which has all their values, and which NCCL sums.
_IN_FLOAT32 = {tf.bool, tf.float16, tf.bfloat16, tf.int8, tf.uint8, tf.int16, tf.uint16}
_AS_THEY_ARE = {tf.float32, tf.float64, tf.int32, tf.int64}


def gather_rows(values: Any, rows: StepRows) -> Any:
    """Return the rows of all replicas, in the order of the global batch, on each of them.

    Tensors of one type are exchanged together. The gradient of a replica's rows is what its own
    result passes back to them, and nothing is exchanged for it. It is divided by the replica's
    fraction of the rows, which all its gradients are multiplied by afterwards: so the sum over the
    replicas, which compute the same from the rows, is that of one worker.

    Parameters
    ----------
    values
        A structure of tensors whose first dimension is the rows of this replica, and of None.
    rows
        The rows of this replica; a placeholder counts for nothing.

    Raises
    ------
    ModelError
        If a tensor cannot be exchanged: one without rows, ragged or sparse ones, and strings.
    """
    flat = tf.nest.flatten(values)
    for value in flat:
        if value is not None:
            check_can_gather("a batch", value)
    if rows.replicas == 1:
        return values
    step_context.note_gather()
    positions = _positions(rows)[:, tf.newaxis]
    own = [value if value is None else _without_placeholder(value, rows) for value in flat]
    parts = [_scattered(value, positions, rows) for value in own if value is not None]
    sums = iter(sum_over_replicas([tf.stop_gradient(part) for part in parts]))
    gathered = [
        value if value is None else _with_gradient(value, next(sums), positions, rows)
        for value in own
    ]
    return tf.nest.pack_sequence_as(values, gathered)


def check_can_gather(name: str, value: Any) -> None:
    """Refuse a tensor, or its specification, whose rows replicas cannot exchange."""
    is_dense = isinstance(value, (tf.Tensor, tf.TensorSpec))
    if not is_dense or value.dtype not in _IN_FLOAT32 | _AS_THEY_ARE or value.shape.rank == 0:
        kind = f"{value.dtype.name} of shape {value.shape}" if is_dense else type(value).__name__
        raise ModelError(
            f"the rows of {name} ({kind}) cannot be exchanged between replicas: give dense tensors "
            f"of numbers, with a row for each example"
        )


def _without_placeholder(value: tf.Tensor, rows: StepRows) -> tf.Tensor:
    message = "a tensor has another number of rows than the batch of its replica"
    expected = tf.maximum(rows.local_rows, 1)  # without rows there is a placeholder
    check = tf.debugging.assert_equal(tf.shape(value, tf.int64)[0], expected, message)
    with tf.control_dependencies([] if check is None else [check]):
        return value[: rows.local_rows]


def _positions(rows: StepRows) -> tf.Tensor:
    """Return the positions of a replica's rows in the global batch."""
    if simulated := step_context.current().simulated:
        return tf.constant(list(simulated.numbers), tf.int64)
    number = tf.range(rows.local_rows)
    if rows.is_divided:
        task, of_task = replica_id() // rows.per_task, replica_id() % rows.per_task
        first = task + of_task * (rows.replicas // rows.per_task)
        return tf.cast(first, tf.int64) + number * rows.replicas
    own = tf.one_hot(replica_id(), rows.replicas) * _as_float(rows.local_rows)
    (counts,) = sum_over_replicas([own])
    return tf.reduce_sum(tf.cast(counts, tf.int64)[: replica_id()]) + number


def _as_float(value: tf.Tensor) -> tf.Tensor:
    return tf.cast(value, tf.float32)


def _scattered(value: tf.Tensor, positions: tf.Tensor, rows: StepRows) -> tf.Tensor:
    """Return the global batch with zeros for the rows of other replicas."""
    value = _as_float(value) if value.dtype in _IN_FLOAT32 else value
    shape = tf.concat([[rows.global_rows], tf.shape(value, tf.int64)[1:]], 0)
    return tf.ensure_shape(tf.scatter_nd(positions, value, shape), [None, *value.shape[1:]])


def _with_gradient(
    own: tf.Tensor, total: tf.Tensor, positions: tf.Tensor, rows: StepRows
) -> tf.Tensor:
    """Return the rows of all replicas as a function of a replica's own."""

    @tf.custom_gradient
    def gathered(own: tf.Tensor) -> tuple[tf.Tensor, Any]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            part = tf.gather_nd(upstream, positions)
            return tf.math.divide_no_nan(part, rows.local_fraction(part.dtype))

        return tf.cast(total, own.dtype), gradient

    return gathered(own)
