"""Random numbers on several replicas.

Each replica draws numbers of its own, e.g. for dropout: those of Keras's seed generators, which all
replicas have in the same state, with the replica's number mixed in. The first replica draws what
one worker draws.

With ``--same-random`` every replica draws the numbers of all rows of the global batch and takes
those of its own rows. So layers that draw numbers for each row, such as dropout, augmentation and
noise, compute what they compute on one worker. Each replica draws as many numbers as one worker
would. What mixes rows, such as MixUp or CutMix, mixes those of a replica.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer.keras_compat import keras_random

from . import step_context
from .step_context import StepRows


def install(*, same: bool = False) -> None:
    """Have each replica draw numbers of its own, or all draw those of the global batch's rows."""
    keras_random.install(_next_of_replica, same=same)
    if same:
        keras_random.replace_draws(_for_global_batch)
        draws = keras.random
        tf.random.normal = _normal(tf.random.normal, draws.normal)
        tf.random.truncated_normal = _normal(tf.random.truncated_normal, draws.truncated_normal)
        tf.random.uniform = _uniform(tf.random.uniform)


def seed_replica() -> None:
    """Let ``tf.random`` draw numbers of this replica in the rest of its part of a step.

    Within a task TensorFlow does so by the number of each operation of a graph.
    """
    graph = tf.compat.v1.get_default_graph()
    if graph.building_function and graph.seed is not None and not keras_random.is_same():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        graph.seed = keras_random.replica_seed(graph.seed, int(tf.get_static_value(replica)))


def _next_of_replica(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Return Keras's function for a generator's next seed, with the replica's number mixed in.

    Without waiting for the rows, Keras would count a draw in a step that finds the end of the data.
    """

    def draw_for_replica(generator: Any, ordered: bool = True) -> Any:
        rows = _divided_rows()
        with tf.control_dependencies([] if rows is None else [rows.local_rows]):
            seed = draw(generator, ordered)
        is_alone = not keras_random.is_in_one_of_several_replicas()
        if keras_random.is_same() or is_alone or step_context.current().simulated:
            return seed
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return seed + tf.cast(replica, seed.dtype) * tf.constant(
            [keras_random.PRIME, 0], seed.dtype
        )

    return draw_for_replica


def _divided_rows() -> StepRows | None:
    """Return the replica's rows of the global batch whose step is traced, if any is."""
    rows = step_context.current().rows
    return rows if rows is not None and rows.is_divided else None


def _rows_to_draw_for() -> StepRows | None:
    """Return the replica's rows of the global batch if all replicas draw the numbers of all."""
    return _divided_rows() if keras_random.is_same() else None


def _for_global_batch(name: str, draw: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of Keras that draws, by what its first argument is."""

    def by_shape(shape: Any, *args: Any, **options: Any) -> Any:
        rows = _rows_of(shape)
        if rows is None:
            return draw(shape, *args, **options)
        whole, own = _divide(shape, rows)
        return tf.gather(draw(whole, *args, **options), own)

    def dropout(inputs: Any, rate: float, noise_shape: Any = None, seed: Any = None) -> Any:
        shape = tf.shape(inputs)
        if noise_shape is not None:
            shape = [shape[n] if size is None else size for n, size in enumerate(noise_shape)]
        rows = _rows_of(shape)
        if rows is None:
            return draw(inputs, rate, noise_shape, seed)
        whole, own = _divide(shape, rows)
        return inputs * tf.gather(draw(tf.ones(whole, inputs.dtype), rate, seed=seed), own)

    def categorical(logits: Any, *args: Any, **options: Any) -> Any:
        rows = _rows_of(tf.shape(logits))
        if rows is None:
            return draw(logits, *args, **options)
        whole, own = _divide(tf.shape(logits), rows)
        logits = tf.tensor_scatter_nd_update(tf.zeros(whole, logits.dtype), own[:, None], logits)
        return tf.gather(draw(logits, *args, **options), own)

    return {"dropout": dropout, "categorical": categorical}.get(name, by_shape)


def _rows_of(shape: Any) -> StepRows | None:
    """Return the rows that a draw is for; None if its first dimension is no number of rows."""
    rows = _rows_to_draw_for()
    sizes = tf.get_static_value(tf.convert_to_tensor(shape, tf.int32), partial=True)
    if rows is None or sizes is None or not len(sizes):
        return rows if sizes is None else None
    is_constant = sizes[0] is not None and not (rows.size and sizes[0] % rows.size == 0)
    return None if is_constant else rows


def _divide(shape: Any, rows: StepRows) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the shape for the global batch, and the indices of a replica's part of it.

    A layer may have put several parts of a row, such as time steps, where rows are.
    """
    shape = tf.cast(tf.convert_to_tensor(shape, tf.int32), tf.int64)
    local = tf.maximum(rows.local_rows, 1)  # without rows there is a placeholder
    parts, rest = shape[0] // local, shape[0] % local
    size = tf.where(rest == 0, parts * tf.maximum(rows.global_rows, 1), shape[0])
    number = tf.range(shape[0])
    row, part = number // tf.maximum(parts, 1), number % tf.maximum(parts, 1)
    first = tf.distribute.get_replica_context().replica_id_in_sync_group
    own = (tf.cast(first, tf.int64) + row * rows.replicas) * parts + part
    own = tf.minimum(tf.where(rest == 0, own, number), size - 1)
    return tf.cast(tf.concat([[size], shape[1:]], 0), tf.int32), own


def _normal(theirs: Callable[..., Any], draw: Callable[..., Any]) -> Callable[..., Any]:
    """Return a normal distribution of ``tf.random`` that draws by Keras in a step."""

    def normal(
        shape: Any,
        mean: Any = 0.0,
        stddev: Any = 1.0,
        dtype: Any = tf.float32,
        *args: Any,
        **names: Any,
    ) -> Any:
        if _rows_to_draw_for() is None:
            return theirs(shape, mean, stddev, dtype, *args, **names)
        return tf.cast(mean, dtype) + tf.cast(stddev, dtype) * draw(shape, dtype=dtype)

    return normal


def _uniform(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``tf.random.uniform`` that draws by Keras in a step."""

    def uniform(
        shape: Any,
        minval: Any = 0,
        maxval: Any = None,
        dtype: Any = tf.float32,
        *args: Any,
        **names: Any,
    ) -> Any:
        if _rows_to_draw_for() is None:
            return theirs(shape, minval, maxval, dtype, *args, **names)
        if not tf.as_dtype(dtype).is_floating:
            return keras.random.randint(shape, minval, maxval, dtype=dtype)
        least = tf.cast(minval, dtype)
        width = tf.cast(1 if maxval is None else maxval, dtype) - least
        return least + width * keras.random.uniform(shape, dtype=dtype)

    return uniform
