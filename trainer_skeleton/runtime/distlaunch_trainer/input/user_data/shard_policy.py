"""How a user's batches are sharded: by their rows, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import DataError, PlanError
from distlaunch_trainer.input.batch_rows import count_rows, tensors_in, unpacked
from distlaunch_trainer.input.batches import Data
from distlaunch_trainer.input.order.plan import SharedBatchPlan, TaskBatchPlan
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.task.explain import user_code

from .batch_sharding import SharedBatches, TaskBatches
from .same_rows import DataFacts, RowComparison, check_equal, facts_of, gather_facts
from .user_dataset import NO_END, BatchSource, batch_end, dataset_source
from .work_division import divide_work_of

Dataset = tf.data.Dataset


def open_batches(
    source: BatchSource,
    policy: str,  # ``data`` or ``off``
    cluster: Cluster,
    report: Report,
    *,
    steps_per_epoch: int = 0,  # if the user has set them
    first_step: int = 0,
) -> Data:
    """Shard a user's batches; a collective.

    The data are read once to count the batches only if nothing else gives their number: neither the
    type of the data set, nor `steps_per_epoch` in a run that starts from scratch. In a resumed run
    it has to be known in which pass `first_step` is.
    """
    batch, is_regular = _batch_size(source, cluster)
    sharding = _Sharding(source, batch, cluster, report, is_regular=is_regular)
    if source.is_endless and not steps_per_epoch:
        raise DataError(
            f"the {source.kind} {NO_END}, so an epoch has no length: set --steps-per-epoch"
        )
    if policy == "off" and cluster.role.num_workers > 1:
        return sharding.by_task(steps_per_epoch)
    return sharding.by_row(steps_per_epoch, first_step)


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
        self, source: BatchSource, batch: int, cluster: Cluster, report: Report, *, is_regular: bool
    ) -> None:
        self._source = source
        self._batch = batch
        self._cluster = cluster
        self._report = report
        self._is_regular = is_regular
        self._description = {"kind": "dataset", "batch": batch}
        self._cardinality = int(source.one_pass.cardinality())
        self._what = f"the {source.kind} of trainer/data.py"

    def by_row(self, steps_per_epoch: int, first_step: int) -> Data:
        """Shard the rows of each batch."""
        cluster, source, report = self._cluster, self._source, self._report
        comparison = None
        if cluster.role.num_workers > 1:
            facts, of_tasks = self._gather_facts()
            check_equal(of_tasks, cluster.role.peers, self._what)
            comparison = RowComparison(cluster.rendezvous, report.warn, facts, self._what)
        plan, pass_steps = self._row_plan(steps_per_epoch, first_step)
        if division := divide_work_of(source.one_pass, cluster, plan.examples):
            report.log(division.log_line)
        batches = SharedBatches(
            dataset_source(division.parts) if division else source,
            plan,
            pass_steps,
            is_regular=self._is_regular,
            comparison=None if division else comparison,
            is_divided=division is not None,
        )
        return Data(batches, plan, self._description)

    def _row_plan(self, steps_per_epoch: int, first_step: int) -> tuple[SharedBatchPlan, int]:
        """Return the plan, and the batches after which the order of the data begins again."""
        source, batch, is_regular = self._source, self._batch, self._is_regular
        least = batch if is_regular else None
        known = None if is_regular else batch_end(source.one_pass)
        if known is not None and self._cardinality == -(-known.rows // batch):
            least = (known.rows - 1) % batch + 1
        plan = SharedBatchPlan(
            batch,
            self._cluster.replicas,
            least_rows=least,
            only_last_differs=known is not None,
        )
        if self._cardinality >= 0:
            examples = self._cardinality * batch if is_regular else None
            plan = replace(plan, steps=self._cardinality, examples=examples)
        elif not source.is_endless and not steps_per_epoch:
            self._report.log(
                f"reading the {source.kind} to count its batches; --steps-per-epoch, or "
                "assert_cardinality() at its end, makes that unnecessary"
            )
            plan = _counted_plan(plan, source.one_pass)
        elif not source.is_endless and first_step:
            done = first_step + 1
            counted = _counted_plan(plan, source.one_pass.take(done))
            if counted.steps == done:  # the first pass is under way
                return plan, done
            plan = counted
        return plan, plan.steps or steps_per_epoch

    def by_task(self, steps_per_epoch: int) -> Data:
        """Have each task iterate over batches of its own, of which a step has one each."""
        cluster, source, batch = self._cluster, self._source, self._batch
        if batch < cluster.local_replicas:
            raise PlanError(
                f"batch({batch}) of the data set leaves {cluster.local_replicas - batch} of the "
                f"{cluster.local_replicas} replicas of {cluster.role.name} idle: use "
                f"batch({cluster.local_replicas}) or more"
            )
        facts, of_tasks = self._gather_facts()
        counts = count_task_batches(
            *(source.one_pass, of_tasks, cluster, self._report),
            what=self._what,
            policy="--shard-policy",
        )
        if 0 in counts:
            raise PlanError("there are no examples to train on: the data set is empty")
        if not facts.is_python and len({each.sources for each in of_tasks}) == 1:
            tasks = len(of_tasks)
            self._report.warn(
                f"--shard-policy off: all {tasks} tasks read the same data, so an epoch sees each "
                f"row {tasks} times: use --shard-policy data, or have training() give each task "
                f"rows of its own"
            )
        shortest = min(counts)
        longest = None if source.is_endless else max(counts)
        is_last_small = not self._is_regular
        if is_last_small and batch_end(source.one_pass) is None:
            full_steps = 0  # any batch may be
        elif longest is None:
            full_steps = 1
        else:
            full_steps = shortest - is_last_small
        plan = TaskBatchPlan(
            batch * cluster.role.num_workers, cluster.replicas, longest, full_steps
        )
        idle = longest - counts[cluster.role.rank] if longest else 0
        return Data(TaskBatches(source, longest or steps_per_epoch, idle), plan, self._description)

    def _gather_facts(self) -> tuple[DataFacts, list[DataFacts]]:
        """Return what is known of the data set on this task, and on each."""
        own = facts_of(self._source.one_pass)
        return own, gather_facts(own, self._cluster.rendezvous, self._what)


def count_task_batches(
    dataset: Dataset,
    of_tasks: list[DataFacts],
    cluster: Cluster,
    report: Report,
    *,
    what: str,
    policy: str,  # the option that is off
) -> list[int]:
    """Return the batches of each task's own data set in a pass, all -1 if they have no end.

    A collective. A task that is idle at the end of a pass is warned of.
    """
    counts, peers = [each.length for each in of_tasks], cluster.role.peers
    if tf.data.UNKNOWN_CARDINALITY in counts:
        own = counts[cluster.role.rank]
        if own == tf.data.UNKNOWN_CARDINALITY:
            report.log(f"reading {what} to count its batches")
            with user_code("reading the data set failed"):
                own = int(dataset.reduce(tf.constant(0, tf.int64), lambda count, *_: count + 1))
        counts = cluster.rendezvous.exchange("batches", own, f"to count {what}")
    shortest, longest = min(counts), max(counts)
    sizes = (f"{count:,}" if count >= 0 else "no end" for count in counts)
    by_task = ", ".join(f"{peer} {size}" for peer, size in zip(peers, sizes, strict=True))
    if shortest != longest and shortest <= 0:
        raise DataError(
            f"{what}: no batches, or no end, on some tasks only ({by_task}): give each task some"
        )
    report.log(
        f"{what}: each task has its own batches, as {policy} is off ({by_task}); a step trains on "
        "one of every task"
    )
    if shortest != longest:
        report.warn(
            f"{what}: {peers[counts.index(shortest)]} is idle in {longest - shortest:,} of the "
            f"{longest:,} steps of an epoch; {policy} data shards rows evenly"
        )
    return counts


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
