"""The data of a script's call: opened as Keras opens them, and divided among the tasks.

The data set must yield the same batches on every task; a script that shards by itself
(``AutoShardPolicy.OFF``) or that has distributed its data set has batches of its own on each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.input.user_data.user_batches import Opening, UserBatches, open_batches
from distlaunch_trainer.keras_compat import fit_calls
from distlaunch_trainer.report.report import Report


@dataclass(frozen=True)
class Caller:
    """The call that reads data, for messages and exchanges."""

    cluster: Cluster
    report: Report
    call: str  # fit() (train.py, line 30)


def open_data(caller: Caller, *arrays: Any, **options: Any) -> UserBatches:
    """Return the data of a call, which all tasks make together, as Keras takes its arguments.

    They must be the same on all tasks, unless the script shards them itself.
    """
    adapter = fit_calls.data_adapter(*arrays, **options)
    most = keras.config.max_steps_per_epoch()  # for debugging
    steps = min(filter(None, (options.get("steps_per_epoch"), most)), default=None)
    what = f"the data of {caller.call}"
    dataset = adapter.get_tf_dataset()
    if isinstance(dataset, tf.distribute.DistributedDataset):
        return _of_each_replica(adapter, dataset, caller, steps)
    opening = Opening(caller.cluster, caller.report, what, "auto_shard_policy", steps)
    return open_batches(adapter, dataset, opening)


@dataclass(frozen=True)
class _Distributed:
    """The parts of a data set that a script has distributed."""

    dataset: tf.distribute.DistributedDataset
    spec: None = None  # it may have gaps

    def iterator(self, skip: int = 0) -> Any:
        """Return an iterator, after the first batches."""
        iterator = iter(self.dataset)
        for _ in range(skip):
            next(iterator, None)
        return iterator


def _of_each_replica(
    adapter: Any,
    dataset: tf.distribute.DistributedDataset,
    caller: Caller,
    steps: int | None,
) -> UserBatches:
    """Return data that the script has distributed, of which each replica has its own.

    Epochs get the length of the longest part; tasks know only that of their own part.
    """
    what, exchange = f"the data of {caller.call}", caller.cluster.rendezvous.exchange
    counts = exchange("length", adapter.num_batches, f"to read {what}")
    longest = None if None in counts else max(counts)
    is_endless = int(dataset.cardinality) == tf.data.INFINITE_CARDINALITY
    parts = _Distributed(dataset)
    return UserBatches(
        *(what, adapter, caller.cluster, "whole", parts, longest, is_endless),
        requested_steps=steps,
    )
