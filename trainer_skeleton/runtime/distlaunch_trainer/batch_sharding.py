"""The replicas' rows of a user's batches.

With row sharding every task iterates over the same batches, and replica ``r`` of ``R`` takes the
rows ``r, r + R, r + 2R ...`` of each. So batches may have any shapes and sizes, and each row is
seen once as long as all tasks have the same batches. With file sharding each task iterates over the
batches of its own files (TensorFlow's ``AutoShardPolicy.FILE``), which are cut into steps.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .batch_rows import count_rows, take_rows, unpacked
from .fingerprints import fingerprints
from .pipeline import Batches
from .plan import SharedBatchPlan, UnevenBatchPlan
from .same_rows import RowComparison
from .user_dataset import BatchSource

Dataset = tf.data.Dataset


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
    is_regular
        Whether all batches have as many rows by their type.
    numbered
        Whether a fingerprint of each row comes with it, for an audit.
    comparison
        Compares the first batch with those of other tasks.
    is_divided
        Whether the source has this task's rows of the batches alone, see `divide_work`.
    """

    def __init__(
        self,
        source: BatchSource,
        plan: SharedBatchPlan,
        pass_steps: int,
        *,
        is_regular: bool,
        numbered: bool = False,
        comparison: RowComparison | None = None,
        is_divided: bool = False,
    ) -> None:
        self._is_divided = is_divided
        self._source = source
        self._plan = plan
        self._pass_steps = pass_steps
        self._is_regular = is_regular
        self._comparison = comparison
        self.numbered = numbered

    def _stream(self, replicas: range, first_step: int) -> Dataset:
        stream = self._source.passes(*divmod(first_step, self._pass_steps))
        if self._plan.replicas == 1 and self._is_regular and not self.numbered:
            # A call for each batch takes longer than all else of a pipeline in memory.
            rows = Dataset.from_tensors(tf.constant(self._plan.global_batch, tf.int64)).repeat()
            return Dataset.zip((stream, rows, rows))
        if self._is_divided:
            parts = divided_locally(stream, len(replicas))
        else:
            parts = divided(stream, self._plan.replicas, replicas, self._comparison)
        return parts.map(_with_fingerprints) if self.numbered else parts

    def find_bad_record(self, replicas: range, step: int = 0) -> str | None:  # noqa: ARG002
        """Return how the first batch differs between tasks."""
        return self._comparison.problem or None if self._comparison else None


def divided(
    batches: Dataset,
    replicas: int,
    replica_ids: range,
    comparison: RowComparison | None = None,
    **options: Any,
) -> Dataset:
    """Return the rows of batches that belong to the replicas of a task, for these in turn.

    Parameters
    ----------
    batches
        The same batches on every task.
    replicas
        Number of replicas.
    replica_ids
        The replicas of this task.
    comparison
        Compares the first batch with those of other tasks.
    **options
        Of ``map``.

    Returns
    -------
    tf.data.Dataset
        ``(data, rows, global_rows)``: replica ``r`` of ``R`` has the rows ``r, r + R, r + 2R ...``.
        If that is none, the data have one row, which does not count.
    """

    def part(position: tf.Tensor, data: Any, replica: Any) -> tuple[Any, ...]:
        data = _without_optionals(data)
        total = count_rows(data)
        if comparison:
            total = comparison.after(position, data, total)
        return *_every_nth(data, tf.cast(replica, tf.int64), total, replicas), total

    @tf.autograph.experimental.do_not_convert
    def whole(_: tf.Tensor, data: Any) -> tuple[Any, ...]:
        data = _without_optionals(data)
        rows = count_rows(data)
        return data, rows, rows

    @tf.autograph.experimental.do_not_convert
    def one(position: tf.Tensor, data: Any) -> tuple[Any, ...]:
        return part(position, data, replica_ids[0])

    @tf.autograph.experimental.do_not_convert
    def several(position: tf.Tensor, data: Any) -> Dataset:
        numbers = Dataset.range(replica_ids.start, replica_ids.stop)
        return numbers.map(lambda replica: part(position, data, replica))

    numbered = batches.enumerate()
    if replicas == 1:
        # Counting the rows is too little work for a thread of its own.
        return numbered.map(whole, synchronous=True)
    if len(replica_ids) == 1:
        return numbered.map(one, **options)
    return numbered.flat_map(several)


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
        row = self._any_batches.take(1).map(lambda *data: take_rows(unpacked(data), [0]))
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


def _every_nth(data: Any, first: tf.Tensor, end: tf.Tensor, step: int) -> tuple[Any, tf.Tensor]:
    """Return the rows ``first, first + step ...`` below ``end``, and how many these are.

    If there are none, the data are one row that does not count.
    """
    own = tf.maximum((end - first + step - 1) // step, 0)
    first = tf.where(own > 0, first, 0)
    return take_rows(data, tf.range(first, tf.where(own > 0, end, 1), step)), own


def divided_locally(parts: Dataset, local: int) -> Dataset:
    """Return the rows of each replica of a task, for these in turn, of the task's rows.

    Parameters
    ----------
    parts
        ``(data, rows, global_rows)``: a task's rows of each global batch.
    local
        Replicas of the task.
    """
    if local == 1:
        return parts

    @tf.autograph.experimental.do_not_convert
    def several(data: Any, rows: tf.Tensor, total: tf.Tensor) -> Dataset:
        return Dataset.range(local).map(lambda n: (*_every_nth(data, n, rows, local), total))

    return parts.flat_map(several)


def _without_optionals(data: Any) -> Any:
    """Return data with None for the parts that Keras has no arrays for."""
    return tf.nest.map_structure(
        lambda part: None if isinstance(part, tf.experimental.Optional) else part, data
    )


def _with_fingerprints(data: Any, own: tf.Tensor, total: tf.Tensor) -> tuple[Any, ...]:
    return data, own, total, fingerprints(data)


def _batch(data: Any, own: tf.Tensor, total: tf.Tensor, *, numbered: bool) -> tuple[Any, ...]:
    return (data, own, total, *([fingerprints(data)] if numbered else []))
