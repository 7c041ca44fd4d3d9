"""The batches of a task for all of its replicas, and how a loop reads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.input.order.plan import AnyPlan, BatchPlan
from distlaunch_trainer.training_state import Progress

if TYPE_CHECKING:
    from distlaunch_trainer.input.order.pipeline import Pipeline

Dataset = tf.data.Dataset

BatchForm = Literal["divided", "by_task", "own", "whole", "same"]
"""What an element has for a replica: ``(data, rows, global_rows)``, the last two scalars (int64),
of a batch that is divided among all replicas, or among the tasks and then the replicas of each;
``(data, rows)`` of a batch that only its task has; the data of a whole batch alone; or those of a
batch that all replicas have, of which each takes its rows."""


class Reader(ABC):
    """Reads the batches of one task, epoch by epoch, or evaluation by evaluation."""

    iterator: Any  # of the batches of this epoch
    steps: int | None  # how many there are; None if only reading shows it
    may_end_early = False  # whether there may be fewer: after each step `is_end` is called then
    has_ended = False  # whether the data have ended before the end of this epoch
    form: BatchForm = "divided"
    is_for_once = False  # whether each evaluation takes a new reader

    @abstractmethod
    def begin(self, step: int, done: int = 0) -> None:
        """Begin to read an epoch before which `step` steps were done, and of it `done` more."""

    def end(self, steps: int) -> None:  # noqa: B027 - nothing to do, unless the data may end
        """End an epoch after some steps."""

    def is_end(self, rows: np.ndarray, step: int) -> bool:
        """Return whether a step had no batch, by the global rows that each replica counted.

        DataError is raised if the tasks differ.
        """
        raise NotImplementedError

    @abstractmethod
    def has_empty_replicas(self, step: int) -> bool:
        """Return whether some replica may have no row in a step of this epoch."""

    @property
    def position(self) -> list[int | None]:
        """What `Data.reader` needs to begin this epoch, or the next one after `end`."""
        return []


class EndlessReader(Reader):
    """Reads as many batches in each epoch, of an iterator that has no end."""

    def __init__(self, iterator: Any, plan: AnyPlan, steps: int, first_step: int = 0) -> None:
        self.iterator = iterator
        self.steps: int = steps
        self._plan = plan
        self._first_step = first_step

    def begin(self, step: int, done: int = 0) -> None:
        """Begin to read an epoch."""

    def has_empty_replicas(self, step: int) -> bool:
        """Return whether some replica has no row in a step, counted over all epochs."""
        step -= self._first_step
        return isinstance(self._plan, BatchPlan) and self._plan.has_empty_replicas(step)


def with_static_rows(batches: Dataset, rows: int | None) -> Dataset:
    """Return batches whose number of rows is part of their shapes, if it must be."""
    if rows is None:
        return batches

    def shaped(data: Any, *sizes: Any) -> tuple[Any, ...]:
        shape = lambda part: tf.ensure_shape(part, [rows, *part.shape[1:]])  # noqa: E731
        return tf.nest.map_structure(shape, data), *sizes

    return batches.map(shaped)


def on_devices(batches: Dataset, cluster: Cluster) -> Iterable[Any]:
    """Return the batches of a task's replicas in turn so that an iterator has those of each step.

    Where there are GPUs, the next batch is copied to them while a step computes. On a CPU the plain
    iterator takes half the time.
    """
    gpus = tf.config.list_logical_devices("GPU")
    is_on_host = not (gpus and _can_be_on_gpu(batches.element_spec))
    if cluster.local_replicas == 1 and is_on_host and not cluster.needs_static_shapes:
        return batches
    if cluster.replicas == 1 and gpus:
        return batches.apply(tf.data.experimental.prefetch_to_device("/device:GPU:0"))
    options = tf.distribute.InputOptions(
        experimental_fetch_to_device=_can_be_on_gpu(batches.element_spec)
    )
    return cluster.strategy.distribute_datasets_from_function(lambda _: batches, options)


def _can_be_on_gpu(spec: Any) -> bool:
    """Return whether a batch has dense numbers only: text, ragged and sparse tensors stay here."""
    parts = [part for part in tf.nest.flatten(spec) if hasattr(part, "shape")]
    return all(isinstance(part, tf.TensorSpec) and part.dtype != tf.string for part in parts)


@dataclass(frozen=True)
class Data:
    """Batches, how they are sharded, and the source that they are read from."""

    pipeline: Pipeline
    plan: BatchPlan
    source: dict[str, Any]
    first_step: int = 0  # of the run on these data, the steps before were on others

    def data_spec(self) -> Any:
        """Return the type of a batch's data."""
        return self.pipeline.data_spec()

    def of_one_replica(self) -> Dataset:
        """Return whole batches, with their rows, without end."""
        return self.pipeline.dataset(range(1))

    def find_bad_record(self, replicas: range, step: int = 0) -> str | None:
        """Return which record cannot be read or parsed, and why; see `Pipeline`."""
        return self.pipeline.find_bad_record(replicas, step)

    def reader(
        self,
        cluster: Cluster,
        progress: Progress | None = None,
        *,
        epochs: int | None = None,
        steps: int | None = None,
    ) -> Reader:
        """Return a reader of the batches of this task, from where a run is.

        An epoch has ``steps``, by default those of a pass over the data. Nothing is read after
        ``epochs`` in total, if their number is known.
        """
        steps = steps or self.plan.steps
        assert steps, "the length of an epoch is known"
        progress = progress or Progress()
        first_step = progress.step - self.first_step
        epoch_step = progress.epoch_step - self.first_step
        last_step = epochs and epoch_step + (epochs - len(progress.history)) * steps
        batches = self.pipeline.batches(cluster, first_step, last_step)
        return EndlessReader(batches, self.plan, steps, self.first_step)

    def describe(self, examples: int | None = None) -> dict[str, Any]:
        """Return what ``summary.json`` records of the data.

        ``examples`` is the number of examples where only the training has shown it.
        """
        return {**self.source, "examples": self.plan.examples or examples}
