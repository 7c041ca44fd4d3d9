"""``predict`` of a script on several tasks.

What one batch holds, each task predicts by itself: no task waits for another. Of more batches each
task predicts its share, and all get the rows of all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.input.user_data.user_batches import UserBatches
from distlaunch_trainer.keras_compat import fit_calls


def predict_alone(function: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
    """Return what a function of Keras predicts on this task's first replica."""
    with fit_calls.on_one_replica(arguments.arguments["self"]):
        return function(*arguments.args, **arguments.kwargs)


def predict_together(
    function: Callable[..., Any],
    arguments: inspect.BoundArguments,
    data: UserBatches,
    cluster: Cluster,
) -> Any:
    """Return what all tasks predict, each a part of the batches."""
    values = arguments.arguments
    tasks = cluster.role.num_workers
    if not data.can_be_shared or (data.num_batches or 0) < tasks or values["callbacks"]:
        return predict_alone(function, arguments)
    part = data.dataset.shard(tasks, cluster.role.rank)
    with fit_calls.on_one_replica(values["self"]) as model:
        model.make_predict_function()
        outputs = [model.predict_function([batch]) for batch in part]
    columns = [list(column) for column in zip(*map(keras.tree.flatten, outputs), strict=True)]
    kinds = [_kind(column) for column in columns]
    all_kinds = cluster.rendezvous.exchange("outputs", kinds, "to predict")
    if None in kinds or any(other != kinds for other in all_kinds):
        return predict_alone(function, arguments)
    rows = np.zeros(-(-data.num_batches // tasks), np.int64)  # the last tasks may have one fewer
    rows[: len(columns[0])] = [len(value) for value in columns[0]]
    counts = cluster.all_gather(rows).T.ravel()
    merged = [_merged(np.concatenate(column), counts, cluster) for column in columns]
    return keras.tree.pack_sequence_as(outputs[0], merged)


def _kind(column: list[Any]) -> list[Any] | None:
    """Return type and shape of a row of an output's batches; None if they cannot be merged."""
    if not all(isinstance(value, tf.Tensor) and value.shape.rank for value in column):
        return None
    kinds = {(value.dtype.name, *value.shape[1:]) for value in column}
    is_number = column[0].dtype.is_floating or column[0].dtype.is_integer or column[0].dtype.is_bool
    return list(kinds.pop()) if len(kinds) == 1 and is_number else None


def _merged(own: np.ndarray, counts: np.ndarray, cluster: Cluster) -> np.ndarray:
    """Return the rows of all tasks: of batch b, which has ``counts[b]``, those of task b mod n."""
    ends = np.cumsum(counts)
    merged = np.zeros((ends[-1], *own.shape[1:]), own.dtype)
    done = 0
    for batch in range(cluster.role.rank, len(counts), cluster.role.num_workers):
        count = counts[batch]
        merged[ends[batch] - count : ends[batch]] = own[done : done + count]
        done += count
    return cluster.merge(merged)
