"""The replicas' rows of a user's batches.

With row sharding every task iterates over the same batches, and replica ``r`` of ``R`` takes the
rows ``r, r + R, r + 2R ...`` of each. So batches may have any shapes and sizes, and each row is
seen once as long as all tasks have the same batches. Without sharding each task has batches of its
own, and a step is one of every task.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from distlaunch_trainer.input.batch_rows import count_rows, take_rows
from distlaunch_trainer.input.batches import Batches
from distlaunch_trainer.input.order.plan import SharedBatchPlan

from .same_rows import RowComparison
from .user_dataset import BatchSource

Dataset = tf.data.Dataset


class SharedBatches(Batches):
    """The replicas' rows of batches that are the same on all tasks."""

    def __init__(
        self,
        source: BatchSource,
        plan: SharedBatchPlan,
        pass_steps: int,  # batches after which the data begin from their start on resuming
        *,
        is_regular: bool,  # whether all batches have as many rows by their type
        comparison: RowComparison | None = None,  # of the first batch with those of other tasks
        is_divided: bool = False,  # whether the source has this task's rows alone: `divide_work`
    ) -> None:
        self._is_divided = is_divided
        self._source = source
        self._plan = plan
        self._pass_steps = pass_steps
        self._is_regular = is_regular
        self._comparison = comparison

    def _stream(self, replicas: range, first_step: int) -> Dataset:
        stream = self._source.passes(*divmod(first_step, self._pass_steps))
        if self._plan.replicas == 1 and self._is_regular:
            # A call for each batch takes longer than all else of a pipeline in memory.
            rows = Dataset.from_tensors(tf.constant(self._plan.global_batch, tf.int64)).repeat()
            return Dataset.zip((stream, rows, rows))
        if self._is_divided:
            return divided_locally(stream, len(replicas))
        return divided(stream, self._plan.replicas, replicas, self._comparison)

    def find_bad_record(self, replicas: range, step: int = 0) -> str | None:  # noqa: ARG002
        """Return how the first batch differs between tasks."""
        return self._comparison.problem or None if self._comparison else None


def divided(
    batches: Dataset,  # the same on every task
    replicas: int,
    replica_ids: range,  # of this task
    comparison: RowComparison | None = None,  # of the first batch with those of other tasks
    **options: Any,  # of ``map``
) -> Dataset:
    """Return the rows of batches that belong to the replicas of a task, for these in turn.

    Elements are ``(data, rows, global_rows)``. A replica without rows has data of one row, which
    does not count.
    """

    def part(position: tf.Tensor, data: Any, replica: Any) -> tuple[Any, ...]:
        data = _without_optionals(data)
        total = count_rows(data)
        if comparison:
            total = comparison.after(position, data, total)
        return *every_nth(data, tf.cast(replica, tf.int64), total, replicas), total

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
    """The replicas' rows of batches that only this task has."""

    form = "own"

    def __init__(
        self,
        source: BatchSource,
        pass_steps: int,  # after which the data begin from their start
        idle: int,  # steps of a pass in which other tasks have batches, and this one none any more
    ) -> None:
        self._source = source
        self._pass_steps = pass_steps
        self._idle = idle

    def _stream(self, replicas: range, first_step: int) -> Dataset:
        number, first = divmod(first_step, self._pass_steps)
        local = len(replicas)
        if not self._idle:
            return own_parts(self._source.passes(number, first), local)
        one_pass = own_parts(self._source.one_pass, local, self._idle)
        rest = one_pass.skip(first * local)
        return rest.concatenate(one_pass.repeat()) if first else one_pass.repeat()


def own_parts(batches: Dataset, local: int, idle: int = 0) -> Dataset:
    """Return ``(data, rows)`` of a task's batches for each of its ``local`` replicas in turn.

    ``idle`` batches without rows are added: their data have one row, which does not count.
    """
    parts = divided(batches, local, range(local)).map(lambda data, rows, _: (data, rows))
    if not idle:
        return parts
    empty = parts.take(local).map(lambda data, rows: (data, tf.zeros_like(rows)))
    return parts.concatenate(empty.repeat(idle))


def every_nth(data: Any, first: tf.Tensor, end: tf.Tensor, step: int) -> tuple[Any, tf.Tensor]:
    """Return the rows ``first, first + step ...`` below ``end``, and how many these are.

    If there are none, the data are one row that does not count.
    """
    own = tf.maximum((end - first + step - 1) // step, 0)
    first = tf.where(own > 0, first, 0)
    return take_rows(data, tf.range(first, tf.where(own > 0, end, 1), step)), own


def divided_locally(parts: Dataset, local: int) -> Dataset:
    """Return the rows of each of a task's ``local`` replicas in turn, of the task's rows.

    Elements are ``(data, rows, global_rows)``, before and after.
    """
    if local == 1:
        return parts

    @tf.autograph.experimental.do_not_convert
    def several(data: Any, rows: tf.Tensor, total: tf.Tensor) -> Dataset:
        return Dataset.range(local).map(lambda n: (*every_nth(data, n, rows, local), total))

    return parts.flat_map(several)


def _without_optionals(data: Any) -> Any:
    """Return data with None for the parts that Keras has no arrays for."""
    return tf.nest.map_structure(
        lambda part: None if isinstance(part, tf.experimental.Optional) else part, data
    )
