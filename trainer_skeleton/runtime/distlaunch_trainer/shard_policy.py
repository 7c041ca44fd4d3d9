"""Shard policies of a user's batches: by files, by rows, or not at all."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from .batch_rows import count_rows, tensors_in, unpacked
from .batch_sharding import SharedBatches, TaskBatches
from .cluster import Cluster
from .errors import DataError, PlanError, summarize
from .explain import user_code
from .fingerprints import all_fingerprints
from .pipeline import Data
from .plan import SharedBatchPlan, UnevenBatchPlan
from .report import Report
from .same_rows import RowComparison, different_rows, facts_of
from .user_dataset import BatchSource, dataset_source, rows_in_batches
from .work_division import divide_work_of

Dataset = tf.data.Dataset

_NO_FILES = "it does not read files"


def open_batches(
    source: BatchSource,
    policy: str,
    cluster: Cluster,
    report: Report,
    *,
    steps_per_epoch: int = 0,
    first_step: int = 0,
    numbered: bool = False,
) -> Data:
    """Shard a user's batches; a collective.

    The data are read once to count the batches only if nothing else gives their number: neither the
    type of the data set, nor `steps_per_epoch` in a run that starts from scratch.

    Parameters
    ----------
    source
        The batches.
    policy
        ``auto``, ``file``, ``data`` or ``off``.
    cluster, report
        The tasks, and where to log what a policy makes of the data.
    steps_per_epoch
        Steps of an epoch if the user has set them, otherwise 0.
    first_step
        The step from which a run is resumed; it has to be known in which pass this is.
    numbered
        Whether a fingerprint of each row comes with it, for an audit.

    Raises
    ------
    DataError
        If there are no batches, other ones on other tasks, or no end and no `steps_per_epoch`.
    PlanError
        If they cannot be sharded so.
    """
    batch, is_regular = _batch_size(source, cluster)
    sharding = _Sharding(source, batch, cluster, steps_per_epoch, first_step, numbered=numbered)
    if source.is_endless and not steps_per_epoch:
        raise DataError(
            f"the {source.kind} {source.length_problem}, so an epoch has no length: set "
            "--steps-per-epoch"
        )
    if cluster.role.num_workers > 1 and policy != "data" and source.is_shardable:
        data, problem = sharding.by_task(policy, is_regular=is_regular)
        if data is not None:
            for note in _notes(data.plan, policy, cluster, source):
                report.warn(note)
            return data
        if policy != "auto":
            raise PlanError(
                f"--shard-policy {policy} cannot shard the data set: {problem}: use --shard-policy "
                f"data"
            )
        if problem != _NO_FILES:
            report.warn(f"--shard-policy auto: rows are sharded instead of files: {problem}")
    return sharding.by_row(is_regular=is_regular, report=report)


def _batch_size(source: BatchSource, cluster: Cluster) -> tuple[int, bool]:
    """Return the rows of a batch, and whether all batches have as many by their type.

    The first batch is read if its type has no size.
    """
    spec = tf.nest.flatten(source.one_pass.element_spec)
    parts = [part for part in spec if hasattr(part, "shape")]  # None has no shape
    sizes = {_static_size(part.shape) for part in parts}
    is_regular = sizes.isdisjoint({None, 0})
    if not is_regular and 0 not in sizes:
        sizes = {source.batch} if source.batch else _first_sizes(source)
    if len(sizes) > 1 or 0 in sizes:
        raise DataError(
            f"the {source.kind} has no batches: end it with .batch(n), n the global batch"
        )
    batch = sizes.pop()
    if not cluster.all_equal(batch):
        raise DataError(
            f"the {source.kind} has batches of other sizes on other tasks ({cluster.role.name} has "
            f"{batch}): end it with the same .batch(n) on all, see trainer/data.py"
        )
    return batch, is_regular


def _static_size(shape: tf.TensorShape) -> int | None:
    """Return the rows of a batch's part: None if its type does not have them, 0 for a scalar."""
    if shape.rank is None:
        return None
    return shape[0] if shape.rank else 0


def _first_sizes(source: BatchSource) -> set[int]:
    with user_code("reading the data set failed"):
        first = [part for data in source.one_pass.take(1) for part in tensors_in(data)]
    if not first:
        raise DataError(f"the {source.kind} is empty: see trainer/data.py")
    return {int(count_rows(part)) for part in first}


class _Sharding:
    """The ways to shard a source."""

    def __init__(
        self,
        source: BatchSource,
        batch: int,
        cluster: Cluster,
        steps_per_epoch: int,
        first_step: int,
        *,
        numbered: bool,
    ) -> None:
        self._source = source
        self._batch = batch
        self._cluster = cluster
        self._steps_per_epoch = steps_per_epoch
        self._first_step = first_step
        self._numbered = numbered
        self._description = {"kind": "dataset", "batch": batch}
        self._cardinality = int(source.one_pass.cardinality())

    def by_row(self, *, is_regular: bool, report: Report) -> Data:
        """Shard the rows of each batch."""
        cluster, batch = self._cluster, self._batch
        if not cluster.all_equal(self._cardinality):
            raise DataError(
                f"the {self._source.kind} does not have the same number of batches on all tasks "
                f"({cluster.role.name} has {self._cardinality:,}): give every task the whole data, "
                "see trainer/data.py"
            )
        least = batch if is_regular else None
        known = None if is_regular else rows_in_batches(self._source.one_pass)
        if known is not None and self._cardinality == -(-known[0] // batch):
            least = (known[0] - 1) % batch + 1
        plan = SharedBatchPlan(
            batch, cluster.replicas, least_rows=least, only_last_differs=known is not None
        )
        pass_steps = self._steps_per_epoch
        if self._cardinality >= 0:
            examples = self._cardinality * batch if is_regular else None
            plan = replace(plan, steps=self._cardinality, examples=examples)
        elif not self._source.is_endless and not self._steps_per_epoch:
            report.log(
                f"reading the {self._source.kind} to count its batches; --steps-per-epoch, or "
                "assert_cardinality() at its end, makes that unnecessary"
            )
            plan = _counted_plan(plan, self._source.one_pass)
        elif not self._source.is_endless and self._first_step:
            done = self._first_step + 1
            counted = _counted_plan(plan, self._source.one_pass.take(done))
            if counted.steps < done:
                plan = counted
            else:  # the first pass is under way
                pass_steps = done
        comparison = self._comparison(report)
        division = divide_work_of(self._source.one_pass, cluster)
        if division and self._source.is_shardable:
            report.log(division.describe())
        else:
            division = None
        batches = SharedBatches(
            dataset_source(division.parts) if division else self._source,
            plan,
            plan.steps or pass_steps,
            is_regular=is_regular,
            numbered=self._numbered,
            comparison=None if division else comparison,
            is_divided=division is not None,
        )
        return Data(batches, plan, self._description)

    def _comparison(self, report: Report) -> RowComparison | None:
        """Refuse a data set that begins with other rows on other tasks; compare first batches."""
        role = self._cluster.role
        if role.num_workers == 1:
            return None
        what = f"the {self._source.kind} of trainer/data.py"
        facts = facts_of(self._source.one_pass)
        if not self._cluster.all_equal(int(facts.sources, 16)):
            raise different_rows(f"{what} differ between the tasks")
        return RowComparison(self._cluster.rendezvous, report.warn, facts, what)

    def by_task(self, policy: str, *, is_regular: bool) -> tuple[Data | None, str]:
        """Have each task iterate over batches of its own, or return why it cannot."""
        cluster, batch = self._cluster, self._batch
        batches, problem = self._own_batches(policy)
        rows = 0
        if not problem and self._source.is_endless and not is_regular:
            problem = "the size of its batches is unknown, see .batch(n, drop_remainder=True)"
        if not problem and not self._source.is_endless:
            rows, problem = _count_regular(batches, batch)
        counts = np.concatenate(cluster.all_gather(np.array([-1 if problem else rows], np.int64)))
        if counts.min() < 0:
            return None, cluster.broadcast_text(problem) or problem or "another task cannot read it"
        plan = UnevenBatchPlan(
            batch,
            cluster.role.num_workers,
            cluster.local_replicas,
            None if self._source.is_endless else tuple(counts.tolist()),
        )
        pipeline = TaskBatches(
            batches,
            self._source.one_pass,
            plan,
            cluster.role.rank,
            plan.steps or self._steps_per_epoch,
            numbered=self._numbered,
        )
        return Data(pipeline, plan, self._description), ""

    def _own_batches(self, policy: str) -> tuple[Dataset, str]:
        """Return the batches of this task, or a reason why there are none."""
        one_pass, role = self._source.one_pass, self._cluster.role
        if policy == "off":
            return one_pass, ""
        spec = tf.nest.flatten(one_pass.element_spec, expand_composites=True)
        try:
            variant = tf.raw_ops.AutoShardDataset(
                input_dataset=tf.data.experimental.to_variant(one_pass),
                num_workers=role.num_workers,
                index=role.rank,
                output_types=[part.dtype for part in spec],
                output_shapes=[part.shape for part in spec],
                auto_shard_policy=tf.data.experimental.AutoShardPolicy.FILE.value,
            )
        except tf.errors.OpError as error:
            is_unshardable = "unshardable source" in str(error)
            return one_pass, _NO_FILES if is_unshardable else _sharding_problem(error)
        return tf.data.experimental.from_variant(variant, one_pass.element_spec), ""


def _counted_plan(plan: SharedBatchPlan, batches: Dataset) -> SharedBatchPlan:
    """Return the plan with the number of batches and rows, for which all are read."""

    def add(state: tuple[Any, ...], *data: Any) -> tuple[Any, ...]:
        count, rows, least = state
        size = count_rows(unpacked(data))
        return count + 1, rows + size, tf.minimum(least, size)

    zero = tf.constant(0, tf.int64)
    with user_code("reading the data set failed"):
        counted = batches.reduce((zero, zero, tf.int64.max), add)
    steps, examples, least = (int(number) for number in counted)
    return replace(plan, steps=steps, examples=examples, least_rows=least)


def _count_regular(batches: Dataset, batch: int) -> tuple[int, str]:
    """Return the rows of a task's batches, or why they cannot be cut into equal steps."""

    def add(state: tuple[Any, ...], *data: Any) -> tuple[Any, ...]:
        rows, is_regular, size_before = state
        size = count_rows(unpacked(data))
        return rows + size, tf.logical_and(is_regular, tf.equal(size_before, batch)), size

    start = (tf.constant(0, tf.int64), tf.constant(True), tf.constant(batch, tf.int64))
    try:
        rows, is_regular, last = batches.reduce(start, add)
    except tf.errors.OpError as error:
        return 0, _sharding_problem(error)
    if not is_regular or last > batch:
        return 0, "its batches have different sizes"
    return int(rows), ""


def _sharding_problem(error: tf.errors.OpError) -> str:
    few = re.search(r"only has (\d+) file", str(error))
    return f"it has {few[1]} file(s), fewer than there are tasks" if few else summarize(error)


def _notes(plan: UnevenBatchPlan, policy: str, cluster: Cluster, source: BatchSource) -> list[str]:
    """Return warnings, with figures, of rows that are seen several times, and of idle replicas."""
    notes = []
    if plan.counts is None:
        return notes
    if policy == "off" and _read_the_same(source, cluster):
        notes.append(
            f"--shard-policy off: all {plan.tasks} tasks read the same {plan.counts[0]:,} "
            f"rows, so an epoch sees each of them {plan.tasks} times ({plan.examples:,} rows): "
            f"use --shard-policy data, or have training() give each task rows of its own"
        )
    shortest = min(range(plan.tasks), key=plan.counts.__getitem__)
    idle = plan.steps - plan.steps_of(shortest)
    if idle:
        shares = ", ".join(f"{count:,}" for count in plan.counts)
        notes.append(
            f"the tasks have {shares} rows: in {idle} of the {plan.steps} steps of an epoch "
            f"{cluster.role.peers[shortest]} is idle; --shard-policy data shards the rows evenly"
        )
    return notes


def _read_the_same(source: BatchSource, cluster: Cluster) -> bool:
    total = int(all_fingerprints(source.one_pass).sum(dtype=np.int64))
    return cluster.all_equal(total)
