"""The data that the tasks of a script read: the same on all, or of each task its own."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import tensorflow as tf

from distlaunch_trainer.cluster import Cluster
from distlaunch_trainer.errors import DataError
from distlaunch_trainer.keras_compat import FitBatches
from distlaunch_trainer.same_rows import DataFacts, RowComparison, check_equal, facts_of, suspects

from .batches import own_batches, split_batches

if TYPE_CHECKING:
    from .session import Session

_OFF = tf.data.experimental.AutoShardPolicy.OFF


def distribute(
    batches: FitBatches,
    dataset: tf.data.Dataset,
    cluster: Cluster,
    session: Session,
    *,
    are_arrays: bool,
    least_rows: int,
) -> tf.data.Dataset:
    """Return this task's parts of the batches of a call; the tasks wait for each other.

    Parameters
    ----------
    batches
        Keras's, of which the length is set if the tasks have batches of their own.
    dataset
        The script's, as this task has it.
    cluster, session
        The tasks, and the calls of the script.
    are_arrays
        Whether the data set is one that Keras has made of arrays.
    least_rows
        Rows that every batch has at least.

    Raises
    ------
    DataError
        If the data differ between the tasks, and the script does not shard them itself.
    """
    role, what = cluster.role, f"the data of {session.call}"
    comparison = None
    facts = facts_of(dataset)
    if are_arrays:  # Keras's functions that read them draw nothing else on other tasks
        facts = replace(facts, is_python=False, is_random=False)
    if role.num_workers > 1:
        is_off = dataset.options().experimental_distribute.auto_shard_policy == _OFF
        of_tasks = session.rendezvous.exchange("data", asdict(facts), f"to read {what}")
        of_tasks = [DataFacts(**each) for each in of_tasks]
        if is_off and len({(each.batches, each.sources) for each in of_tasks}) > 1:
            return _of_each_task(batches, dataset, cluster, session, [e.batches for e in of_tasks])
        check_equal(of_tasks, role.peers, what)
        comparison = RowComparison(session.rendezvous, session.report.warn, facts, what)
        session.comparison = comparison
    return split_batches(
        dataset,
        cluster.replicas,
        cluster.replica_ids,
        least_rows=least_rows,
        comparison=comparison,
        reads_ahead=not facts.is_python,
    )


def observe_distributed(batches: FitBatches, session: Session) -> None:
    """Take note of data that the script has distributed, of which each replica has its own.

    Epochs get the length of the longest part; tasks know only that of their own part.

    Raises
    ------
    DataError
        If they are for ``predict``.
    """
    if session.call.startswith("predict"):
        raise DataError(
            "predict() cannot order the rows of a distributed data set: give it the tf.data.Dataset"
        )
    own, reading = batches.data_adapter.num_batches, f"to read the data of {session.call}"
    counts = session.rendezvous.exchange("length", own, reading)
    if None not in counts and len(set(counts)) > 1:
        batches.set_length(max(counts))
    session.comparison = None


def _of_each_task(
    batches: FitBatches,
    dataset: tf.data.Dataset,
    cluster: Cluster,
    session: Session,
    counts: list[int],
) -> tf.data.Dataset:
    """Return the batches of a script that shards by itself, with as many steps on all tasks."""
    peers, what = cluster.role.peers, f"the data of {session.call}"
    if session.call.startswith("predict"):
        raise DataError(
            f"{what} differ between the tasks, and predict() returns the rows of all tasks: give "
            f"all tasks the same data{suspects()}"
        )
    if any(count == tf.data.UNKNOWN_CARDINALITY for count in counts):
        session.report.log(f"reading {what} to count its batches")
        own = int(dataset.reduce(tf.constant(0, tf.int64), lambda count, *_: count + 1))
        counts = session.rendezvous.exchange("batches", own, f"to count {what}")
    shortest, longest = min(counts), max(counts)
    by_task = ", ".join(f"{peer} {n:,}" for peer, n in zip(peers, counts, strict=True))
    if shortest != longest and shortest <= 0:
        raise DataError(f"{what} have no batches, or no end, on some tasks only: {by_task}")
    if longest > 0:
        batches.set_length(longest)
    session.report.log(
        f"{what}: each task has its own, as auto_shard_policy is OFF ({by_task} batches); a step "
        "trains on one batch of every task"
    )
    idle = longest - counts[cluster.role.rank] if longest > 0 else 0
    if shortest != longest:
        session.report.warn(
            f"{what}: {peers[counts.index(shortest)]} is idle in {longest - shortest:,} of the "
            f"{longest:,} steps"
        )
    return own_batches(dataset, cluster.local_replicas, idle)
