"""Sums over all replicas, computed in a replica's part of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import tensorflow as tf

from distlaunch_trainer.cluster.wire_types import wire_type

from . import step_context
from .step_context import StepRows

# All-reduces of this size overlap the rest of the backward pass; smaller ones cost more latency.
_BYTES_PER_PACK = 32 << 20


class CollectiveInXlaError(Exception):
    """A function that XLA should compile exchanges values with other replicas."""


def refuse_collectives_in_xla(strategy: tf.distribute.Strategy) -> None:
    """Have every exchange of replicas raise CollectiveInXlaError where XLA compiles it.

    That is also for variables with an aggregation that a layer assigns: where all devices are GPUs,
    TensorFlow exchanges their values within XLA, and otherwise it fails.
    """
    context: Any = tf.distribute.ReplicaContext
    for owner, name in ((context, "merge_call"), (strategy.extended, "_replica_ctx_all_reduce")):
        function = getattr(owner, name)
        if not hasattr(function, "__wrapped__"):
            setattr(owner, name, _outside_xla(function))


def _outside_xla(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def exchange(*args: Any, **options: Any) -> Any:
        if step_context.current().in_xla:
            raise CollectiveInXlaError
        return function(*args, **options)

    return exchange


def replica_id() -> tf.Tensor:
    """Return the number of the replica whose part of a step is traced."""
    return tf.distribute.get_replica_context().replica_id_in_sync_group


def on_first_replica(value: tf.Tensor) -> tf.Tensor:
    """Return a value on the first replica, and 0 on all others."""
    return tf.where(tf.equal(replica_id(), 0), value, tf.zeros_like(value))


def sum_over_replicas(values: list[tf.Tensor]) -> list[tf.Tensor]:
    """Return sums, all-reduced in packs of values of one dtype, see `wire_type`.

    The last values are in the first pack: backpropagation computes their gradients first. Values
    of unknown shape make one pack of all.
    """
    if simulated := step_context.current().simulated:
        return simulated.exchange(values)
    context = tf.distribute.get_replica_context()
    is_known = all(value.shape.is_fully_defined() for value in values)
    options = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=_BYTES_PER_PACK if is_known else 0
    )
    by_type: dict[tf.DType, list[int]] = {}
    for number, value in enumerate(values):
        by_type.setdefault(wire_type(value.dtype), []).append(number)
    sums = list(values)
    for wire, numbers in by_type.items():
        own = [tf.cast(values[n], wire) for n in numbers]
        reduced = context.all_reduce(tf.distribute.ReduceOp.SUM, own, options)
        for number, value in zip(numbers, reduced, strict=True):
            sums[number] = tf.cast(value, values[number].dtype)
    return sums


def sum_gradients(gradients: Sequence[Any]) -> list[Any]:
    """Return sums of dense gradients, the gathered rows of sparse ones, and None for None."""
    present = [gradient for gradient in gradients if gradient is not None]
    timer, reduce = step_context.current().timer, partial(_sum_gradients, present)
    sums = iter(timer.time_exchange(present, reduce) if timer else reduce())
    return [None if gradient is None else next(sums) for gradient in gradients]


def _sum_gradients(gradients: Sequence[Any]) -> list[Any]:
    # TensorFlow requires that replicas gather as many rows in all steps of one execution.
    gathered = [_sum_rows(each) if gathers_rows(each) else None for each in gradients]
    pairs = list(zip(gradients, gathered, strict=True))
    dense = iter(sum_over_replicas([_values(each) for each, rows in pairs if rows is None]))
    return [_with_values(each, next(dense)) if rows is None else rows for each, rows in pairs]


def _sum_rows(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Return the rows of all replicas, one after the other: each may have another number."""
    step_context.note_gather()
    own = _with_values(gradient, tf.cast(gradient.values, wire_type(gradient.dtype)))
    context = tf.distribute.get_replica_context()
    gathered = context.all_reduce(tf.distribute.ReduceOp.SUM, own)
    gathered = _with_values(gathered, tf.cast(gathered.values, gradient.dtype))
    if depends_on_batch(gradient.indices, by_shape=False):
        return gathered
    return _summed(gathered, gradient.indices, context.num_replicas_in_sync)


def _summed(gathered: tf.IndexedSlices, own: tf.Tensor, replicas: int) -> tf.IndexedSlices:
    """Return sums over the replicas if all look up the same, e.g. positions up to the longest row.

    One worker has the sum over its batch, see `gathers_rows`.
    """
    is_same = tf.equal(tf.size(gathered.indices), replicas * tf.size(own))
    shape = tf.concat([[tf.where(is_same, replicas, 1), -1], tf.shape(gathered.values)[1:]], 0)
    by_replica = tf.reshape(gathered.indices, shape[:2])
    is_same = tf.reduce_all(tf.equal(by_replica, by_replica[:1]))
    count = tf.where(is_same, tf.shape(by_replica)[1], tf.size(gathered.indices))
    shape = tf.where(is_same, shape, tf.concat([[1, -1], shape[2:]], 0))
    values = tf.reduce_sum(tf.reshape(gathered.values, shape), 0)
    return tf.IndexedSlices(values, gathered.indices[:count], gathered.dense_shape)


def gathers_rows(gradient: Any) -> bool:
    """Return whether replicas exchange the rows of a gradient, because each has its own.

    They have not where rows do not depend on the batch, as of an embedding of positions. There one
    worker has the sum over its batch for each row, and optimizers square it.
    """
    return isinstance(gradient, tf.IndexedSlices) and depends_on_batch(gradient.indices)


def depends_on_batch(value: tf.Tensor, *, by_shape: bool = True) -> bool:
    """Return whether a tensor of a traced step depends on more than constants and variables.

    That is also on the shapes of a batch alone, if `by_shape`.
    """
    if tf.executing_eagerly():
        return True
    pending, seen = [value.op], set()
    while pending:
        operation = pending.pop()
        seen.add(operation)
        if operation.type == "ReadVariableOp" or (operation.type == "Shape" and not by_shape):
            continue
        if not operation.inputs and operation.type != "Const":
            return True
        pending += [each.op for each in operation.inputs if each.op not in seen]
    return False


def indices_per_row(gradient: tf.IndexedSlices) -> int | None:
    """Return how many rows of a table a row of the batch looks up, None if that is not known.

    TensorFlow flattens the indices of each look-up, and concatenates those of several.
    """
    pending, count = [gradient.indices.op], 0
    while pending:
        operation = pending.pop()
        shape = operation.inputs[0].shape
        if operation.type == "ConcatV2":
            pending += [part.op for part in operation.inputs[:-1]]
        elif operation.type == "Reshape" and shape.rank and shape[1:].is_fully_defined():
            count += shape[1:].num_elements()
        else:
            return None
    return count


def _values(gradient: Any) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _with_values(gradient: Any, values: tf.Tensor) -> Any:
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


def with_static_shape(gradient: Any, shape: tuple[int, ...]) -> Any:
    """Return a gradient whose static shape is known, which all-reduce needs to group by size."""
    if isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.ensure_shape(gradient, shape)


def scale(gradient: Any, factor: tf.Tensor) -> Any:
    """Return a dense or sparse gradient, multiplied by a number."""
    return _with_values(gradient, _values(gradient) * tf.cast(factor, gradient.dtype))


def add(gradient: Any, other: Any) -> Any:
    """Return the sum of two gradients of a weight, either of which may be sparse or None."""
    if gradient is None or other is None:
        return other if gradient is None else gradient
    return tf.convert_to_tensor(gradient) + tf.convert_to_tensor(other)


def without_placeholder(gradient: Any, rows: StepRows) -> Any:
    """Return no gradient if a replica has no row; a placeholder's may not be finite."""
    if not gathers_rows(gradient) or not depends_on_batch(gradient.indices, by_shape=False):
        values = _values(gradient)
        return _with_values(gradient, tf.where(rows.local_rows > 0, values, tf.zeros_like(values)))
    kept = tf.where(rows.local_rows > 0, tf.size(gradient.indices), 0)
    return tf.IndexedSlices(gradient.values[:kept], gradient.indices[:kept], gradient.dense_shape)


def weigh(mean: Any, rows: StepRows) -> Any:
    """Return a replica's part of a mean over the rows of all replicas."""
    mean = without_placeholder(mean, rows)
    return scale(mean, rows.local_fraction(mean.dtype))
