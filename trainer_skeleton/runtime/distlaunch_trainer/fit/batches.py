"""The rows of each global batch that a replica reads.

Every task iterates the script's data set as one process would, and takes the rows of its own
replicas: all rows are read in the same steps as in one process, each by one replica. So the data
set must yield the same batches on every task; a script that shards by itself has batches of its
own on each.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from distlaunch_trainer.losses import StepRows
from distlaunch_trainer.same_rows import RowComparison
from distlaunch_trainer.user_dataset import with_one_order

ROWS, GLOBAL_ROWS, MAY_BE_EMPTY, DATA = "rows", "global_rows", "may_be_empty", "distlaunch_data"
OF_TASK = "of_task"


def split_batches(
    dataset: tf.data.Dataset,
    replicas: int,
    replica_ids: range,
    *,
    least_rows: int = 0,
    comparison: RowComparison | None = None,
    reads_ahead: bool = True,
) -> tf.data.Dataset:
    """Return the parts of a data set's batches that belong to the replicas of a task.

    They are one element, from which each replica takes its own. With a distributed data set, the
    tasks would all-reduce in each step whether there is another batch.

    Parameters
    ----------
    dataset
        Batches, the same on every task.
    replicas
        Number of replicas of the cluster.
    replica_ids
        The replicas to return batches for, numbered over the cluster.
    least_rows
        Rows that every batch has at least.
    comparison
        Compares the first batch with those of other tasks.
    reads_ahead
        Whether more may be read than in one process: not of a generator, which would skip it.

    Returns
    -------
    tf.data.Dataset
        Elements for `unpack_batch`. Replica r of R has the rows ``ceil(r n / R)`` to ``ceil((r + 1)
        n / R)`` of a batch with n rows. If that is none, the batch has one row, which is not to be
        counted.
    """
    may_be_empty = least_rows < replicas

    def split(position: tf.Tensor, data: Any) -> Any:
        total = row_count(data)
        if comparison:
            total = comparison.after(position, data, total)
        parts = [_part(data, total, replica, replicas) for replica in replica_ids]
        for part in parts if may_be_empty else ():
            part[MAY_BE_EMPTY] = tf.constant(True)
        return tuple(parts)

    split = tf.autograph.experimental.do_not_convert(split)
    if reads_ahead:
        parts = dataset.enumerate().map(split, num_parallel_calls=tf.data.AUTOTUNE)
        return with_one_order(parts.prefetch(tf.data.AUTOTUNE))
    buffer = None
    if type(dataset).__name__ == "_PrefetchDataset":  # its own comes last, as in one process
        buffer, (dataset,) = int(dataset._buffer_size), dataset._inputs()  # noqa: SLF001
    parts = with_one_order(dataset.enumerate().map(split, synchronous=True))
    if buffer == tf.data.AUTOTUNE:
        buffer = 1  # as many on all tasks: what is read ahead of an epoch's end is skipped
    return parts if buffer is None else parts.prefetch(buffer)


def own_batches(dataset: tf.data.Dataset, local_replicas: int, idle: int) -> tf.data.Dataset:
    """Return the parts of a task's own batches, one for each of its replicas.

    A step's global batch consists of the batches of all tasks.

    Parameters
    ----------
    dataset
        Batches of this task alone.
    local_replicas
        Number of replicas of this task.
    idle
        Steps without rows at the end, in which other tasks have batches.

    Returns
    -------
    tf.data.Dataset
        Elements for `unpack_batch`.
    """

    def mark(*parts: Any) -> Any:
        return tuple(part | {OF_TASK: tf.constant(True)} for part in parts)

    def without_rows(*parts: Any) -> Any:
        return tuple(
            part
            | {
                ROWS: tf.zeros_like(part[ROWS]),
                DATA: tf.nest.map_structure(lambda value: _slice(value, 0, 1), part[DATA]),
            }
            for part in parts
        )

    parts = split_batches(dataset, local_replicas, range(local_replicas)).map(mark)
    return parts.concatenate(parts.take(1).map(without_rows).repeat(idle)) if idle else parts


def are_parts(batch: Any) -> bool:
    """Return whether `split_batches` or `own_batches` made an element."""
    return isinstance(batch, tuple) and isinstance(batch[0], dict) and DATA in batch[0]


def unpack_batch(batch: Any) -> tuple[Any, StepRows]:
    """Return a replica's data and its rows; called in a replica.

    Batches that `split_batches` did not make, such as those of ``train_on_batch`` and of a data set
    that the script has distributed, are a replica's own as they are.
    """
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    if are_parts(batch):
        part = batch[int(tf.get_static_value(context.replica_id_in_sync_group)) % len(batch)]
        total = part[GLOBAL_ROWS]
        if OF_TASK in part:
            # identity() has a device, which an iterator's element lacks.
            total = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(part[ROWS]))
        return part[DATA], StepRows(part[ROWS], total, replicas, MAY_BE_EMPTY in part)
    own = row_count(batch)
    total = context.all_reduce(tf.distribute.ReduceOp.SUM, own)
    if tf.get_static_value(own) is not None:
        return batch, StepRows(own, total, replicas, may_be_empty=False)
    # TensorFlow gives empty batches to the replicas whose data have ended before others'.
    padded = tf.nest.map_structure(lambda value: _with_row(value, own), batch)
    return padded, StepRows(own, total, replicas, may_be_empty=True)


def _with_row(value: Any, rows: tf.Tensor) -> Any:
    """Return an array with a row of zeros if a batch has none."""
    is_array = tf.is_tensor(value) and not isinstance(value, tf.RaggedTensor | tf.SparseTensor)
    if not is_array or not value.shape.rank:
        return value
    missing = tf.cast(rows == 0, tf.int32)
    zeros = tf.zeros(tf.concat([[missing], tf.shape(value)[1:]], 0), value.dtype)
    return tf.ensure_shape(tf.concat([value, zeros], 0), value.shape)


def data_spec(dataset: Any) -> Any:
    """Return the specification of a batch for Keras to build a model with, None if it has gaps."""
    spec = getattr(dataset, "element_spec", None)
    leaves = [leaf for leaf in tf.nest.flatten(spec) if not isinstance(leaf, tf.OptionalSpec)]
    if not all(hasattr(leaf, "shape") and leaf.shape.rank is not None for leaf in leaves):
        return None
    return tf.nest.map_structure(
        lambda leaf: None if isinstance(leaf, tf.OptionalSpec) else leaf, spec
    )


def _part(data: Any, total: tf.Tensor, replica: int, replicas: int) -> dict[str, Any]:
    start, stop = -(-replica * total // replicas), -(-(replica + 1) * total // replicas)
    rows = stop - start
    start = tf.minimum(start, total - 1)
    stop = tf.maximum(stop, start + 1)
    sliced = tf.nest.map_structure(lambda value: _slice(value, start, stop), data)
    return {ROWS: rows, GLOBAL_ROWS: total, DATA: sliced}


def _slice(value: Any, start: tf.Tensor, stop: tf.Tensor) -> Any:
    if isinstance(value, tf.SparseTensor):
        shape = value.dense_shape
        begin = tf.concat([[start], tf.zeros_like(shape[1:])], 0)
        return tf.sparse.slice(value, begin, tf.concat([[stop - start], shape[1:]], 0))
    is_batched = isinstance(value, tf.RaggedTensor) or (tf.is_tensor(value) and value.shape.rank)
    return value[start:stop] if is_batched else value


def row_count(data: Any) -> tf.Tensor:
    """Return the number of rows of a batch (int64), that of its first array."""
    for value in tf.nest.flatten(data):
        if isinstance(value, tf.RaggedTensor):
            return tf.cast(value.nrows(), tf.int64)
        if isinstance(value, tf.SparseTensor):
            return value.dense_shape[0]
        if not isinstance(value, tf.experimental.Optional) and value is not None:
            return tf.shape(value, tf.int64)[0]
    raise ValueError("a batch has no array")
