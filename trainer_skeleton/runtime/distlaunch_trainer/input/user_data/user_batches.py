"""A user's batches on all tasks: how they are opened, counted, compared and divided.

Projects and scripts have this in common. Keras's adapters make data sets of arrays, PyDatasets and
generators. Every task iterates over the same batches, as one process would, and takes the rows of
its own replicas; or each task has batches of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import DataError, PlanError
from distlaunch_trainer.input.batch_rows import count_rows, unpacked
from distlaunch_trainer.input.batches import BatchForm, Reader
from distlaunch_trainer.input.order.plan import SharedBatchPlan
from distlaunch_trainer.keras_compat import fit_calls
from distlaunch_trainer.report.audit import Audit
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.task.explain import user_code
from distlaunch_trainer.training_state import Progress, RunOptions

from .batch_sharding import TaskParts, counted
from .pass_reader import PassReader
from .row_identity import ChecksumIndex
from .same_rows import DataFacts, RowComparison, check_equal, facts_of, gather_facts
from .user_dataset import batch_end, has_constant_length

Dataset = tf.data.Dataset


@dataclass
class UserBatches:
    """A user's batches as this task reads them."""

    what: str  # the data, for messages: the data of fit() (train.py, line 30)
    adapter: Any  # Keras's, of the data
    cluster: Cluster
    form: BatchForm
    # This task's parts: `TaskParts`, or what a script has distributed.
    parts: Any
    num_batches: int | None  # of a pass; None if that is not known, or not the same in each
    is_endless: bool = False
    dataset: Dataset | None = None  # the user's; None if a script has distributed it
    global_batch: int | None = None  # rows of a step; None if that is not known
    examples: int | None = None  # rows of a pass; None if that is not known
    least_rows: int = 0  # of each batch
    full_rows: int = 0  # of all batches of a pass but the last, which may have fewer; 0: unknown
    full_steps: int = 0  # the first of a pass, in which all tasks have batches of their own
    requested_steps: int | None = None  # of an epoch; None for those of a pass
    repeats: bool = False  # whether such an epoch goes on in the next pass
    comparison: RowComparison | None = None  # of the first batch with those of other tasks
    counted_steps: int | None = None  # of the first pass, where it was read to count them
    has_constant_length: bool = False  # whether each pass certainly has as many batches
    identity: str = ""  # of rows, for an audit: checksum or number
    first_step: int = 0  # of the run on these data, the steps before were on others
    source: dict[str, Any] = field(default_factory=lambda: {"kind": "dataset"})

    @property
    def steps(self) -> int | None:
        """The steps of an epoch; None if that is not known."""
        return self.requested_steps or self.num_batches

    @property
    def plan(self) -> SharedBatchPlan:
        """What is known of the steps of a pass."""
        steps = self.counted_steps if self.num_batches is None else self.num_batches
        return SharedBatchPlan(self.global_batch or 0, 1, steps, self.examples)

    def data_spec(self) -> Any:
        """Return the type of a batch's data, for a model's steps."""
        spec = self.parts.spec[0]
        return tf.nest.map_structure(lambda leaf: leaf if hasattr(leaf, "shape") else None, spec)

    def spec_or_batch(self) -> Any:
        """Return the type of a batch, or the first one if that has gaps, to build a model with."""
        if self.form != "whole" and _is_known(spec := self.data_spec()):
            return spec
        data = next(self.parts.iterator())
        return tf.nest.map_structure(_of_first_replica, data if self.form == "whole" else data[0])

    def may_leave_replicas_idle(self, position: int, found: int | None = None) -> bool:
        """Return whether some replica may have no row in a batch of a pass.

        If the number of batches was not known, a pass has ``found`` so many.
        """
        length = self.num_batches or found
        if self.cluster.replicas == 1:
            return False
        if self.form != "divided":
            return position % length >= self.full_steps if length else not self.full_steps
        if self.least_rows >= self.cluster.replicas:
            return False
        is_last = length is None or position % length == length - 1
        return is_last or self.full_rows < self.cluster.replicas

    def pass_length(self, most: int) -> int:
        """Return the batches of a pass, or at least ``most`` + 1 if there are more than that."""
        return self.num_batches or _counted(self.dataset.take(most + 1))[0]

    def run_options(self, replicas: int) -> RunOptions:
        """Return what a checkpoint holds of a script's call."""
        is_divided = self.form == "divided"  # otherwise a batch is a task's
        return RunOptions(
            examples=self.examples or 0,
            global_batch=(self.global_batch or self.full_rows) if is_divided else 0,
            shards=replicas,
            seed=0,
            shuffle=0,
            steps_per_epoch=self.steps or 0,
            batches=self.num_batches or 0,
            precision=keras.config.dtype_policy().name,
        )

    def reader(
        self,
        cluster: Cluster,  # noqa: ARG002 - that of the data
        progress: Progress | None = None,
        *,
        epochs: int | None = None,  # noqa: ARG002 - each pass has an iterator of its own
        steps: int | None = None,  # noqa: ARG002 - those with which the data were opened
    ) -> Reader:
        """Return a reader of the batches of this task, from where a run is."""
        progress = progress or Progress()
        if self.first_step and progress.step == self.first_step:  # the new data begin
            progress = replace(progress, position=[])
        return PassReader(self, progress, self.requested_steps)

    def of_one_replica(self) -> Dataset:
        """Return whole batches, with their rows, without end."""
        batches = self.dataset if self.is_endless else self.dataset.repeat()
        return counted(batches)

    def find_bad_record(self, replicas: range, step: int = 0) -> str | None:  # noqa: ARG002
        """Return how the first batch differs between tasks."""
        return self.comparison.problem or None if self.comparison else None

    def audit(self, report: Report) -> Audit:
        """Return the audit of the rows of training data; a collective."""
        if self.identity == "number":
            return Audit(report, examples=self.examples or _counted(self.dataset)[1])
        is_own = self.form == "own"
        index = ChecksumIndex(self.dataset, self.cluster, self.what, is_own=is_own)
        return Audit(report, examples=index.examples, numbers_of=index)

    def describe(self, examples: int | None = None) -> dict[str, Any]:
        """Return what ``summary.json`` records of the data."""
        return {**self.source, "examples": self.examples or examples}


@dataclass(frozen=True)
class Opening:
    """How a user's batches are opened."""

    cluster: Cluster
    report: Report
    what: str  # the data, for messages: the data of fit() (train.py, line 30)
    policy: str  # the option that is off where each task has batches of its own
    steps: int | None = None  # of an epoch; None for those of a pass
    repeats: bool = False  # whether such an epoch goes on in the next pass
    is_endless: bool = False  # whether the data have no end, though their type does not show it
    counts: bool = False  # whether a pass is read if its length is not known
    audits: bool = False  # whether rows are to be identified
    parts: dict[str, Any] = field(default_factory=dict)  # other arguments of `TaskParts`


def open_batches(
    adapter: Any, dataset: Dataset, opening: Opening, *, is_off: bool | None = None
) -> UserBatches:
    """Open the data set that Keras's adapter has made on all tasks; a collective.

    With ``is_off`` each task has batches of its own; if that is None, where its options have it
    and its rows differ between the tasks.
    """
    cluster, what = opening.cluster, opening.what
    facts = facts_of(dataset, is_of_keras=fit_calls.array_rows(adapter) is not None)
    data = UserBatches(
        what,
        adapter,
        cluster,
        form="divided",
        parts=None,
        num_batches=adapter.num_batches,
        is_endless=opening.is_endless or dataset.cardinality() == tf.data.INFINITE_CARDINALITY,
        dataset=dataset,
        global_batch=adapter.batch_size,
        examples=fit_calls.array_rows(adapter),
        requested_steps=opening.steps,
        repeats=opening.repeats,
    )
    if opening.audits:
        data.identity = "number" if facts.is_random else "checksum"
    data.has_constant_length = has_constant_length(dataset, facts)
    _set_sizes(data)
    of_tasks = [facts]
    if cluster.role.num_workers > 1:
        of_tasks = gather_facts(facts, cluster.rendezvous, what)
        if is_off is None:
            differ = len({(each.length, each.sources) for each in of_tasks}) > 1
            policy = dataset.options().experimental_distribute.auto_shard_policy
            is_off = differ and policy == tf.data.experimental.AutoShardPolicy.OFF
        if is_off:
            return _open_own(data, opening, of_tasks)
        check_equal(of_tasks, cluster.role.peers, what)
    return _open_shared(data, opening, facts)


def _open_shared(data: UserBatches, opening: Opening, facts: DataFacts) -> UserBatches:
    """Open batches that all tasks have, each for its rows."""
    division_rows = None
    if opening.counts and data.num_batches is None and not (data.is_endless or data.repeats):
        opening.report.log(
            f"reading {data.what} to count its batches; --steps-per-epoch, or "
            "assert_cardinality() at its end, makes that unnecessary"
        )
        data.counted_steps, rows, least = _counted(data.dataset)
        if data.has_constant_length:
            data.num_batches, data.least_rows = data.counted_steps, least
            data.examples = division_rows = rows
    if data.cluster.role.num_workers > 1:
        rendezvous, warn = data.cluster.rendezvous, opening.report.warn
        data.comparison = RowComparison(rendezvous, warn, facts, data.what)
    data.parts = TaskParts(
        dataset=data.dataset,
        cluster=data.cluster,
        comparison=data.comparison,
        division_rows=division_rows,
        is_python=facts.is_python,
        renews=not data.repeats and (opening.steps is not None or data.is_endless),
        repeats=data.repeats,
        identity=data.identity,
        **{"reads_ahead": not facts.is_python, **opening.parts},
    )
    if data.parts.shuffles:
        data.parts.shuffles.warn_if_read(opening.report.warn, data.what)
    if data.parts.division:
        data.comparison = None
        opening.report.log(data.parts.division.log_line)
    return data


def _open_own(data: UserBatches, opening: Opening, of_tasks: list[DataFacts]) -> UserBatches:
    """Open batches that each task has alone, of which a step has one of every task."""
    cluster, what = data.cluster, data.what
    if data.identity == "number":
        raise PlanError(
            f"--audit knows rows by their bytes, and random operations of {what} change them in "
            "each reading: leave it out, or use --shard-policy data"
        )
    counts = _count_of_tasks(data, opening, of_tasks)
    shortest, longest = min(counts), max(counts)
    if 0 in counts or (-1 in counts and longest > 0):
        by_task = _by_task(counts, cluster.role.peers)
        raise DataError(
            f"{what}: no batches, or no end, on some tasks only ({by_task}): give each task some"
        )
    if len({each.sources for each in of_tasks}) == 1 and not any(f.is_python for f in of_tasks):
        opening.report.warn(
            f"{opening.policy} off: all {len(of_tasks)} tasks read the same data, so an epoch sees "
            f"each row {len(of_tasks)} times: use {opening.policy} data, or give each task rows of "
            "its own"
        )
    data.form = "own"
    data.num_batches = longest if longest > 0 else None
    if data.full_rows >= cluster.local_replicas:  # by the type, which is the same on all tasks
        is_last_full = data.global_batch is not None
        data.full_steps = shortest - (not is_last_full) if longest > 0 else 1
    data.parts = TaskParts(
        dataset=data.dataset,
        cluster=cluster,
        idle=max(0, longest - counts[cluster.role.rank]),
        repeats=data.repeats,
        identity=data.identity,
        **{"reads_ahead": True, **opening.parts},
    )
    if data.global_batch:
        data.global_batch *= cluster.role.num_workers
    return data


def _count_of_tasks(data: UserBatches, opening: Opening, of_tasks: list[DataFacts]) -> list[int]:
    """Return the batches of each task's own data set in a pass, all -1 if they have no end.

    A task that is idle at the end of a pass is warned of.
    """
    counts, cluster = [each.length for each in of_tasks], data.cluster
    what, report, policy = data.what, opening.report, opening.policy
    if tf.data.UNKNOWN_CARDINALITY in counts:
        own = counts[cluster.role.rank]
        if own == tf.data.UNKNOWN_CARDINALITY:
            report.log(f"reading {what} to count its batches")
            own = _counted(data.dataset)[0]
        counts = cluster.rendezvous.exchange("batches", own, f"to count {what}")
    sizes = _by_task(counts, cluster.role.peers)
    text = f"{what}: each task has its own batches, as {policy} is off ({sizes})"
    if 0 < min(counts) < max(counts):
        report.warn(f"{text}: those with fewer are idle at the end; {policy} data shards evenly")
    else:
        report.log(f"{text}; a step trains on one of every task")
    return counts


def _by_task(counts: list[int], peers: Sequence[str]) -> str:
    sizes = (f"{count:,}" if count >= 0 else "no end" for count in counts)
    return ", ".join(f"{peer} {size}" for peer, size in zip(peers, sizes, strict=True))


def _set_sizes(data: UserBatches) -> None:
    """Set the least rows of a batch, and those of all but the last, by the type of the data."""
    adapter, size = data.adapter, data.global_batch
    end = None if size else batch_end(data.dataset)
    if size:  # of arrays the last batch may be smaller
        data.full_rows = size
        data.least_rows = adapter.partial_batch_size or size
    elif end:
        data.full_rows = end.size
        if data.num_batches == -(-end.rows // end.size):
            data.least_rows = (end.rows - 1) % end.size + 1


def _counted(batches: Dataset) -> tuple[int, int, int]:
    """Return the number of batches and rows, and the least rows of a batch; all are read."""

    def add(state: tuple[Any, ...], *data: Any) -> tuple[Any, ...]:
        count, rows, least = state
        size = count_rows(unpacked(data))
        return count + 1, rows + size, tf.minimum(least, size)

    zero = tf.constant(0, tf.int64)
    with user_code("reading the data set failed"):
        counted = batches.reduce((zero, zero, tf.int64.max), add)
    steps, rows, least = (int(number) for number in counted)
    return steps, rows, least


def _is_known(spec: Any) -> bool:
    """Return whether all tensors of a type have a known rank."""
    leaves = [leaf for leaf in tf.nest.flatten(spec) if hasattr(leaf, "shape")]
    return all(leaf.shape.rank is not None for leaf in leaves)


def _of_first_replica(value: Any) -> Any:
    return value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value


@contextmanager
def compared(*data: UserBatches | None) -> Iterator[None]:
    """Name the rows that differ between the tasks, if reading fails for that."""
    try:
        yield
    except tf.errors.OpError as error:
        for comparison in (each.comparison for each in data if each):
            if comparison and comparison.problem:
                raise DataError(comparison.problem) from error
        raise
