"""A user's ``tf.data.Dataset``, sharded over the replicas.

Such a data set ends with ``batch(n)``, where n is the global batch, and is not taken apart: with
row sharding every task iterates over the same batches, and replica ``r`` of ``R`` takes the rows
``r, r + R, r + 2R ...`` of each. So batches may have any shapes and sizes, and each row is seen
once as long as all tasks come to the same batches. With file sharding each task iterates over the
batches of its own files (TensorFlow's ``AutoShardPolicy.FILE``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from .batch_rows import count_rows, take_rows, tensors_in
from .cluster import Cluster
from .errors import DataError, PlanError
from .errors import gist as summarize
from .explain import user_code
from .fingerprints import all_fingerprints, fingerprints
from .pipeline import Batches, Data
from .plan import SharedBatchPlan, UnevenBatchPlan
from .report import Report

Dataset = tf.data.Dataset

_NO_FILES = "it does not read files"


@dataclass(frozen=True)
class BatchSource:
    """Batches that the user has made, of any rank, size and shape.

    Attributes
    ----------
    one_pass
        The batches of one pass over the data, or of all passes if these have no end.
    passes
        From the number of a pass, and of a batch in it, to all batches from there on, without end.
    kind
        For messages: ``data set``, ``PyDataset`` or ``generator``.
    batch
        Rows of the first batch; 0 if unknown.
    is_shardable
        Whether TensorFlow may shard its files.
    resumes_exactly
        Whether a run that is resumed gets the examples that it would have got.
    """

    one_pass: Dataset
    passes: Callable[[int, int], Dataset]
    kind: str = "data set"
    batch: int = 0
    is_shardable: bool = True
    resumes_exactly: bool = False


def dataset_source(batches: Dataset) -> BatchSource:
    """Return a user's data set as a source of batches."""
    options = tf.data.Options()
    options.deterministic = True  # all tasks must come to the rows in one order
    ordered = batches.with_options(options)

    def passes(_: int, batch: int) -> Dataset:
        return ordered.skip(batch).concatenate(ordered.repeat()) if batch else ordered.repeat()

    is_endless = batches.cardinality() == tf.data.INFINITE_CARDINALITY
    endless = lambda _, batch: ordered.skip(batch)  # noqa: E731
    return BatchSource(ordered, endless if is_endless else passes)


class SharedBatches(Batches):
    """The replicas' rows of batches that are the same on all tasks.

    Parameters
    ----------
    source
        The batches.
    plan
        How they are sharded.
    pass_steps
        Batches after which the order of the data begins from its start on resuming.
    numbered
        Whether a fingerprint of each row comes with it, for an audit.
    """

    def __init__(
        self, source: BatchSource, plan: SharedBatchPlan, pass_steps: int, *, numbered: bool = False
    ) -> None:
        self._source = source
        self._plan = plan
        self._pass_steps = pass_steps
        self.numbered = numbered

    def _stream(self, replicas: range, first_step: int) -> Dataset:
        stream = self._source.passes(*divmod(first_step, self._pass_steps))
        if self._plan.replicas == 1:
            return stream.map(lambda *data: self._whole(_unpacked(data)))
        if len(replicas) == 1:
            return stream.map(lambda *data: self._part(_unpacked(data), replicas[0]))
        return stream.flat_map(lambda *data: self._parts(_unpacked(data), replicas))

    def _whole(self, data: Any) -> tuple[Any, ...]:
        rows = count_rows(data)
        return _batch(data, rows, rows, numbered=self.numbered)

    def _parts(self, data: Any, replicas: range) -> Dataset:
        return Dataset.range(replicas.start, replicas.stop).map(
            lambda replica: self._part(data, replica)
        )

    def _part(self, data: Any, replica: Any) -> tuple[Any, ...]:
        total = count_rows(data)
        return _batch(
            *_every_nth(data, tf.cast(replica, tf.int64), total, self._plan.replicas),
            total,
            numbered=self.numbered,
        )


class TaskBatches(Batches):
    """The replicas' rows of batches that only this task has.

    Parameters
    ----------
    batches
        The batches of one pass of this task, without end if the plan has none.
    any_batches
        Batches with at least one row, of which idle replicas take one that does not count.
    plan
        How they are sharded.
    task
        The number of this task.
    pass_steps
        Steps after which the order of the data begins from its start on resuming.
    numbered
        Whether a fingerprint of each row comes with it, for an audit.
    """

    def __init__(
        self,
        batches: Dataset,
        any_batches: Dataset,
        plan: UnevenBatchPlan,
        task: int,
        pass_steps: int,
        *,
        numbered: bool = False,
    ) -> None:
        self._batches = batches
        self._any_batches = any_batches
        self._plan = plan
        self._task = task
        self._pass_steps = pass_steps
        self.numbered = numbered

    def _stream(self, replicas: range, first_step: int) -> Dataset:
        one_pass = self._one_pass(len(replicas))
        done = first_step % self._pass_steps * len(replicas)
        if self._plan.steps is None:
            return one_pass.skip(done)
        return one_pass.skip(done).concatenate(one_pass.repeat()) if done else one_pass.repeat()

    def _one_pass(self, local: int) -> Dataset:
        """Return this task's parts of all steps of a pass, for its replicas in turn."""
        parts = self._batches.enumerate().flat_map(
            lambda batch, data: self._parts(batch, data, local)
        )
        if self._plan.steps is None:
            return parts
        done = self._plan.steps_of(self._task) * local
        row = self._any_batches.take(1).map(lambda *data: take_rows(_unpacked(data), [0]))
        idle = row.cache().repeat().enumerate(done).take(self._plan.steps * local - done)
        return parts.concatenate(
            idle.map(lambda at, data: self._batch(data, tf.constant(0, tf.int64), at // local))
        )

    def _parts(self, batch: tf.Tensor, data: Any, local: int) -> Dataset:
        """Cut a batch into this task's rows of the next steps, for its replicas in turn."""
        starts = [self._plan.part_bounds(part)[0] for part in range(self._plan.tasks)]
        cuts = tf.constant([*starts, self._plan.global_batch], tf.int64)
        cuts = tf.minimum(cuts, count_rows(data))
        filled = tf.reduce_sum(tf.cast(cuts[1:] > cuts[:-1], tf.int64))

        def cut(at: tf.Tensor) -> tuple[Any, ...]:
            part, replica = at // local, at % local
            rows = _every_nth(data, cuts[part] + replica, cuts[part + 1], local)
            return self._batch(*rows, batch * self._plan.tasks + part)

        return Dataset.range(filled * local).map(cut)

    def _batch(self, data: Any, own: tf.Tensor, step: tf.Tensor) -> tuple[Any, ...]:
        """Return a replica's batch of a step of a pass."""
        plan = self._plan
        bounds = tf.constant([plan.part_bounds(part) for part in range(plan.tasks)], tf.int64)
        start, end = tf.unstack(step // plan.tasks * plan.global_batch + bounds[step % plan.tasks])
        total = (end - start) * plan.tasks
        if plan.counts is not None:
            total = tf.reduce_sum(tf.minimum(end, plan.counts) - tf.minimum(start, plan.counts))
        return _batch(data, own, total, numbered=self.numbered)


def _unpacked(data: tuple[Any, ...]) -> Any:
    """Return an element of a data set, of which functions get a tuple as several arguments."""
    return data if len(data) > 1 else data[0]


def _every_nth(data: Any, first: tf.Tensor, end: tf.Tensor, step: int) -> tuple[Any, tf.Tensor]:
    """Return the rows ``first, first + step ...`` below ``end``, and how many these are.

    If there are none, the data are one row that does not count.
    """
    own = tf.maximum((end - first + step - 1) // step, 0)
    first = tf.where(own > 0, first, 0)
    return take_rows(data, tf.range(first, tf.where(own > 0, end, 1), step)), own


def _batch(data: Any, own: tf.Tensor, total: tf.Tensor, *, numbered: bool) -> tuple[Any, ...]:
    return (data, own, total, *([fingerprints(data)] if numbered else []))


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
    opening = _Opening(source, batch, cluster, steps_per_epoch, first_step, numbered=numbered)
    if opening.is_endless and not steps_per_epoch:
        raise DataError(
            f"the {source.kind} has no end, so an epoch has no length: set --steps-per-epoch"
        )
    if cluster.role.num_workers > 1 and policy != "data" and source.is_shardable:
        data, problem = opening.by_task(policy, is_regular=is_regular)
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
    return opening.by_row(is_regular=is_regular, report=report)


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


class _Opening:
    """What is needed to shard a source."""

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
        self.is_endless = self._cardinality == tf.data.INFINITE_CARDINALITY

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
        plan = SharedBatchPlan(batch, cluster.replicas, least_rows=least)
        pass_steps = self._steps_per_epoch
        if self._cardinality >= 0:
            examples = self._cardinality * batch if is_regular else None
            plan = replace(plan, steps=self._cardinality, examples=examples)
        elif not self.is_endless and not self._steps_per_epoch:
            report.log(
                f"reading the {self._source.kind} to count its batches; --steps-per-epoch, or "
                "assert_cardinality() at its end, makes that unnecessary"
            )
            plan = _counted_plan(plan, self._source.one_pass)
        elif not self.is_endless and self._first_step:
            done = self._first_step + 1
            counted = _counted_plan(plan, self._source.one_pass.take(done))
            if counted.steps < done:
                plan = counted
            else:  # the first pass is under way
                pass_steps = done
        batches = SharedBatches(
            self._source, plan, plan.steps or pass_steps, numbered=self._numbered
        )
        return Data(batches, plan, self._description)

    def by_task(self, policy: str, *, is_regular: bool) -> tuple[Data | None, str]:
        """Have each task iterate over batches of its own, or return why it cannot."""
        cluster, batch = self._cluster, self._batch
        batches, problem = self._own_batches(policy)
        rows = 0
        if not problem and self.is_endless and not is_regular:
            problem = "the size of its batches is unknown, see .batch(n, drop_remainder=True)"
        if not problem and not self.is_endless:
            rows, problem = _count_regular(batches, batch)
        counts = np.concatenate(cluster.all_gather(np.array([-1 if problem else rows], np.int64)))
        if counts.min() < 0:
            return None, cluster.broadcast_text(problem) or problem or "another task cannot read it"
        plan = UnevenBatchPlan(
            batch,
            cluster.role.num_workers,
            cluster.local_replicas,
            None if self.is_endless else tuple(counts.tolist()),
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
        size = count_rows(_unpacked(data))
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
        size = count_rows(_unpacked(data))
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
