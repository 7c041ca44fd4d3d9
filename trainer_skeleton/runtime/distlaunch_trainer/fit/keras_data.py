"""The batches of a script's call of ``fit`` or ``evaluate``, read as Keras reads them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.input.batches import BatchForm, Reader
from distlaunch_trainer.input.user_data.same_rows import RowComparison
from distlaunch_trainer.training_state import Progress, RunOptions

Dataset = tf.data.Dataset


@dataclass
class KerasData:
    """The batches of a call on this task."""

    adapter: Any  # Keras's, of the data
    batches: Iterable[Any]  # this task's parts, of which each iterator reads one pass
    form: BatchForm
    spec: Any  # the type of a batch, as a model's steps get it; None if its shape is not known
    num_batches: int | None  # of a pass; None if that is not known
    is_endless: bool = False
    least_rows: int = 0  # of each batch
    full_rows: int = 0  # of all batches of a pass but the last, which may have fewer; 0: unknown
    comparison: RowComparison | None = None  # of the first batch with those of other tasks
    dataset: Dataset | None = None  # the script's, if all tasks have the same
    can_be_shared: bool = False  # whether it can be read again, by parts
    requested_steps: int | None = None  # steps_per_epoch of fit(), or steps of evaluate()

    @property
    def steps(self) -> int | None:
        """The steps of an epoch; None if that is not known."""
        return self.requested_steps or self.num_batches

    def first_batch(self) -> Any:
        """Return the first batch of this task's first replica, to build a model with."""
        data = next(iter(self.batches))
        data = data if self.form == "whole" else data[0]
        return tf.nest.map_structure(_of_first_replica, data)

    def spec_or_batch(self) -> Any:
        """Return the type of a batch, or the first one, to build a model with."""
        return self.first_batch() if self.spec is None else self.spec

    @property
    def global_batch(self) -> int | None:
        """The rows of a batch; None if that is not known."""
        return None if self.form == "whole" else self.adapter.batch_size

    @property
    def examples(self) -> int | None:
        """The rows of arrays; None for other data."""
        return None if self.form == "whole" else array_rows(self.adapter)

    def run_options(self, replicas: int) -> RunOptions:
        """Return what a checkpoint holds of a call."""
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
        cluster: Cluster,
        progress: Progress | None = None,
        *,
        epochs: int | None = None,  # noqa: ARG002 - each pass has an iterator of its own
        steps: int | None = None,  # noqa: ARG002 - those of the call
    ) -> Reader:
        """Return a reader of the batches of this task, from where a run is."""
        return KerasReader(self, cluster, progress.position if progress else [])


class KerasReader(Reader):
    """Reads batches as Keras's ``EpochIterator``: its passes and iterators are the same.

    The orders of a data set that shuffles depend on the number of iterators made before: two per
    epoch where Keras knows the number of batches.
    """

    is_for_once = True

    def __init__(self, data: KerasData, cluster: Cluster, position: list[int | None]) -> None:
        # `position`: iterators made, batches read of the last one (None if that has ended), and
        # batches of a pass.
        data.adapter.on_epoch_end()  # as Keras does before the first epoch
        self.form = data.form
        self.iterator = None
        self._data = data
        self._replicas = cluster.replicas
        self._is_single = cluster.local_replicas == 1
        self._requested = data.requested_steps
        self._step = 0
        self._iterators = 0
        self._read: int | None = None  # of the iterator, before this epoch
        self._has_ended = False
        iterators, read, self._num_batches = position or (0, None, data.num_batches)
        while self._iterators < (iterators or 0):
            self._open()  # reads nothing
        if read is None:
            self.iterator = None
        self._read = self._skipped = read

    def begin(self, step: int, done: int = 0) -> None:
        self._step = step
        self._data.adapter.on_epoch_begin()
        if self.iterator is None or (self._requested is None and not done):
            self._open()
        for _ in range((self._skipped or 0) + done):
            next(self.iterator, None)
        self._skipped = 0

    @property
    def steps(self) -> int | None:
        if self._num_batches is None:
            return self._requested
        left = self._num_batches - (self._read or 0)
        return left if self._requested is None else min(self._requested, left)

    @property
    def may_end_early(self) -> bool:
        return self._data.num_batches is None and not self._data.is_endless

    def end(self, steps: int) -> None:
        self._read = (self._read or 0) + steps
        is_short = steps < (self._requested or 0)
        if self._has_ended:
            self._num_batches = self._num_batches or self._read
            self.iterator, self._has_ended = None, False
        elif self._num_batches is not None and self._read >= self._num_batches:
            self._open()
        else:
            is_short = False  # a callback has ended the training
        if is_short:
            warnings.warn(
                f"the data had {steps} batches for the {self._requested} steps of an epoch: end "
                "them with .repeat(), or lower steps_per_epoch",
                stacklevel=2,
            )
        self._data.adapter.on_epoch_end()

    def next_batch(self) -> Any:
        if self._is_single and self.form != "whole":
            batch = self.iterator.get_next_as_optional()
            found = batch if batch.has_value() else None
        else:
            found = next(self.iterator, None)
        self._has_ended = found is None
        return found

    def has_empty_replicas(self, step: int) -> bool:
        if self._replicas == 1:
            return False
        if self.form != "divided":
            return True
        if self._data.least_rows >= self._replicas:
            return False
        position = (self._read or 0) + step - self._step
        is_last = self._num_batches is None or position == self._num_batches - 1
        return is_last or self._data.full_rows < self._replicas

    @property
    def position(self) -> list[int | None]:
        """Iterators made, batches read of the last one, and batches of a pass."""
        return [self._iterators, None if self.iterator is None else self._read, self._num_batches]

    def _open(self) -> None:
        self.iterator = iter(self._data.batches)
        self._iterators += 1
        self._read = self._skipped = 0


def _of_first_replica(value: Any) -> Any:
    return value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value


def array_rows(adapter: Any) -> int | None:
    """Return the rows of arrays, None for other data."""
    if has_partial_batch(adapter) is None or adapter.num_batches is None:
        return None
    missing = adapter.batch_size - (adapter.partial_batch_size or adapter.batch_size)
    return int(adapter.num_batches * adapter.batch_size - missing)


def has_partial_batch(adapter: Any) -> bool | None:
    """Return whether the last batch is smaller, None if that is not known."""
    try:
        return adapter.has_partial_batch
    except NotImplementedError:  # generators and PyDatasets
        return None
