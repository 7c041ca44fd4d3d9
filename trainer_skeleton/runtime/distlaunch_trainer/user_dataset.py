"""A ``tf.data.Dataset`` of the user's own, dealt out as TensorFlow shards it.

Such a data set ends with ``batch(n)``, where n is the global batch. It is taken apart into its
rows, sharded by ``--shard-policy`` (TensorFlow's own ``AutoShardPolicy``), and counted once before
the training, so that what a policy makes of it is known: workers that would stand idle, rows that
would be repeated. A replica that has no rows left gets batches that do not count.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import tensorflow as tf

from .cluster import Cluster
from .errors import DataError, PlanError, gist
from .pipeline import Batches, Data
from .plan import Shares
from .report import Report

Dataset = tf.data.Dataset

_POLICIES = {
    "auto": tf.data.experimental.AutoShardPolicy.AUTO,
    "file": tf.data.experimental.AutoShardPolicy.FILE,
}
_AT_ONCE = 1024
_FAILED = -1


class Rows:
    """The rows of a data set, sharded.

    Parameters
    ----------
    batches
        The user's data set.
    replicas
        Number of replicas.
    policy
        ``auto``, ``file``, ``data`` or ``off``.
    """

    def __init__(self, batches: Dataset, replicas: int, policy: str) -> None:
        options = tf.data.Options()
        options.deterministic = True  # all tasks must come upon the rows in one order
        self.all = batches.with_options(options).unbatch()
        self._replicas = replicas
        self._policy = policy

    def of(self, replica: int) -> Dataset:
        """Return a replica's rows.

        Raises
        ------
        tensorflow.errors.OpError
            If the data set cannot be sharded so; perhaps only when it is read.
        """
        if self._policy == "off" or self._replicas == 1:
            return self.all
        if self._policy == "data":  # TensorFlow's own fails with fewer rows than replicas
            return self.all.shard(self._replicas, replica)
        spec = tf.nest.flatten(self.all.element_spec)
        variant = tf.raw_ops.AutoShardDataset(
            input_dataset=tf.data.experimental.to_variant(self.all),
            num_workers=self._replicas,
            index=replica,
            output_types=[part.dtype for part in spec],
            output_shapes=[part.shape for part in spec],
            auto_shard_policy=_POLICIES[self._policy].value,
        )
        return tf.data.experimental.from_variant(variant, self.all.element_spec)


class OwnDataset(Batches):
    """The batches of a user's data set.

    Parameters
    ----------
    rows
        Its rows.
    plan
        How many each replica has.
    numbered
        Whether a fingerprint of each row comes with it, for an audit.
    """

    def __init__(self, rows: Rows, plan: Shares, *, numbered: bool = False) -> None:
        self._rows = rows
        self._plan = plan
        self.numbered = numbered

    def culprit(self, replica: int) -> str | None:  # noqa: ARG002
        """Only the user's own code knows the records."""
        return None

    def _stream(self, replica: int, first_step: int) -> Dataset:
        step = first_step % self._plan.steps
        rows = self._rows.of(replica)
        whole = Dataset.range(1 << 62).flat_map(lambda _: self._one_pass(rows, replica, 0))
        return self._one_pass(rows, replica, step).concatenate(whole) if step else whole

    def _one_pass(self, rows: Dataset, replica: int, step: int) -> Dataset:
        """Return the batches of one pass over the data, from ``step`` on."""
        plan = self._plan
        lacking = min(plan.steps - step, plan.steps - plan.steps_of(replica))
        counting = rows.skip(step * plan.batch).batch(plan.batch).enumerate(step)
        idle = self._rows.all.take(1).batch(1).repeat(lacking).enumerate(plan.steps - lacking)
        batches = counting.map(lambda at, data: self._sized(at, data, counts=True))
        return batches.concatenate(idle.map(lambda at, data: self._sized(at, data, counts=False)))

    def _sized(self, step: tf.Tensor, data: Any, *, counts: bool) -> tuple[Any, ...]:
        plan = self._plan
        own = tf.shape(tf.nest.flatten(data)[0], tf.int64)[0] * int(counts)
        left = tf.constant(plan.counts, tf.int64) - step * plan.batch
        total = tf.reduce_sum(tf.clip_by_value(left, 0, plan.batch))
        return (data, own, total, *([fingerprints(data)] if self.numbered else []))


def open_dataset(
    batches: Dataset, policy: str, cluster: Cluster, report: Report, *, numbered: bool = False
) -> tuple[Data, Rows]:
    """Shard a data set and count what each replica has; a collective.

    Raises
    ------
    DataError
        If the data set has no end, or no batches.
    PlanError
        If it cannot be sharded so.
    """
    batch = _batch_of(batches)
    if not cluster.all_equal(batch):
        raise DataError(
            f"the data set has batches of other sizes on other tasks ({cluster.role.name} has "
            f"{batch}): end it with the same .batch(n) on all, see trainer/data.py"
        )
    rows = Rows(batches, cluster.replicas, policy)
    counts, problem = _counts(rows, cluster)
    if problem and policy == "auto":
        report.warn(
            f"--shard-policy auto: the files cannot be dealt out, {problem}; so the rows are (data)"
        )
        rows = Rows(batches, cluster.replicas, "data")
        counts, problem = _counts(rows, cluster)
    if problem:
        raise PlanError(
            f"--shard-policy {policy} cannot shard the data set: {problem}: use --shard-policy "
            f"data, or at least as many files as there are replicas"
        )
    plan = Shares(counts, batch)
    for note in _notes(plan, policy, cluster, rows):
        report.warn(note)
    source = {"kind": "dataset", "batch": batch}
    return Data(OwnDataset(rows, plan, numbered=numbered), plan, source), rows


def fingerprints(data: Any) -> tf.Tensor:
    """Return a number for each row of a batch that distinguishes it from other rows (int64)."""
    parts = [part for part in tf.nest.flatten(data) if part is not None]
    return tf.map_fn(_fingerprint, parts, fn_output_signature=tf.int64)


def _fingerprint(row: list[tf.Tensor]) -> tf.Tensor:
    text = tf.strings.join([tf.io.serialize_tensor(part) for part in row])
    return tf.strings.to_hash_bucket_fast(text, (1 << 62) - 1)


def all_fingerprints(rows: Dataset) -> np.ndarray:
    """Return the fingerprints of all rows, in their order."""
    hashes = [f.numpy() for f in rows.batch(_AT_ONCE).map(lambda *data: fingerprints(data))]
    return np.concatenate([*hashes, np.empty(0, np.int64)])


def _batch_of(batches: Dataset) -> int:
    """Return the rows of a batch."""
    if batches.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise DataError("the data set has no end, so no epoch has: take .repeat() out of it")
    for first in batches.take(1):
        parts = [part for part in tf.nest.flatten(first) if part is not None]
        lengths = {part.shape[0] if part.shape.rank else None for part in parts}
        if len(lengths) == 1 and None not in lengths:
            return int(lengths.pop())
        raise DataError("the data set has no batches: end it with .batch(n), n the global batch")
    raise DataError("the data set is empty: see trainer/data.py")


def _counts(rows: Rows, cluster: Cluster) -> tuple[tuple[int, ...], str]:
    """Return the rows of each replica, or what is wrong on some task."""
    problem = ""
    try:
        own = [_count(rows.of(replica)) for replica in cluster.replica_ids]
    except tf.errors.OpError as error:
        own = [_FAILED] * cluster.local_replicas
        few = re.search(r"only has (\d+) file", str(error))
        problem = f"it has {few[1]} file(s) for {cluster.replicas} replicas" if few else gist(error)
    counts = np.concatenate(cluster.all_gather(np.array(own, np.int64)))
    if _FAILED not in counts:
        return tuple(int(count) for count in counts), ""
    return (), cluster.broadcast_text(problem) or problem or "a task could not read its part"


def _count(rows: Dataset) -> int:
    batches = rows.batch(_AT_ONCE)
    return int(
        batches.reduce(
            tf.constant(0, tf.int64),
            lambda count, *data: count + tf.shape(tf.nest.flatten(data)[0], tf.int64)[0],
        )
    )


def _notes(plan: Shares, policy: str, cluster: Cluster, rows: Rows) -> list[str]:
    """Say what a policy makes of the data, with figures, where it is not what one would want."""
    notes = []
    if policy == "off" and plan.replicas > 1 and _read_the_same(rows, cluster):
        notes.append(
            f"--shard-policy off: all {plan.replicas} replicas read the same {plan.counts[0]:,} "
            f"rows, so an epoch sees each of them {plan.replicas} times ({plan.examples:,} rows): "
            f"use --shard-policy data, or have training() give each task rows of its own"
        )
    if plan.may_lack_rows:
        shortest = min(range(plan.replicas), key=plan.counts.__getitem__)
        idle = plan.steps - plan.steps_of(shortest)
        shares = ", ".join(f"{count:,}" for count in plan.counts)
        notes.append(
            f"the replicas have {shares} rows: in {idle} of the {plan.steps} steps of an epoch "
            f"replica {shortest} is idle; --shard-policy data deals the rows out evenly"
        )
    return notes


def _read_the_same(rows: Rows, cluster: Cluster) -> bool:
    total = int(all_fingerprints(rows.all).sum(dtype=np.int64))
    return cluster.all_equal(total)


class Positions:
    """The positions in a user's data set of the rows that the tasks see, by fingerprint.

    Rows that are alike have several places, which are given out in turn. Making this and calling
    it are collectives.

    Parameters
    ----------
    rows, cluster
        The data and the tasks.
    rows_of_a_pass
        Rows that all tasks together see in a pass.
    """

    def __init__(self, rows: Rows, cluster: Cluster, rows_of_a_pass: int) -> None:
        everything = all_fingerprints(rows.all)
        self.examples = len(everything)
        self._order = np.argsort(everything, kind="stable")
        self._sorted = everything[self._order]
        self._cluster = cluster
        self._rows_of_a_pass = self._left = rows_of_a_pass
        self._given: Counter[int] = Counter()

    def __call__(self, fingerprints: np.ndarray) -> np.ndarray:
        """Return the places of rows that this task has seen; -1 for rows that are none."""
        first = np.searchsorted(self._sorted, fingerprints, "left")
        alike = np.searchsorted(self._sorted, fingerprints, "right") - first
        nth = np.zeros_like(fingerprints)
        nth[alike > 1] = self._turns(fingerprints[alike > 1])
        place = first + nth % np.maximum(alike, 1)
        self._count(len(fingerprints))
        return np.where(alike > 0, self._order[np.minimum(place, self.examples - 1)], -1)

    def _turns(self, own: np.ndarray) -> np.ndarray:
        """Return for each row how many like it were seen before in this pass, by any task."""
        turns = []
        for rank, rows in enumerate(self._cluster.all_gather(own)):
            for row in rows.tolist():
                if rank == self._cluster.role.rank:
                    turns.append(self._given[row])
                self._given[row] += 1
        return np.array(turns, np.int64)

    def _count(self, own: int) -> None:
        self._left -= int(self._cluster.all_reduce_sum(np.array(own, np.int64)))
        if self._left <= 0:
            self._left += self._rows_of_a_pass
            self._given.clear()
