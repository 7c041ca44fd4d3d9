"""Reads a user's batches pass by pass, as Keras's ``EpochIterator``."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.batches import Reader
from distlaunch_trainer.keras_compat import fit_calls
from distlaunch_trainer.training_state import Progress

from .same_rows import REMEDY, suspects

if TYPE_CHECKING:
    from .user_batches import UserBatches


class PassReader(Reader):
    """Reads batches as Keras does: its passes and iterators are the same.

    The orders of a data set that shuffles depend on the number of iterators made before: two per
    epoch where Keras knows the number of batches.
    """

    is_for_once = True

    def __init__(self, data: UserBatches, progress: Progress, steps: int | None) -> None:
        self.form = "by_task" if getattr(data.parts, "division", None) else data.form
        self.iterator = None
        self._data = data
        self._requested = steps  # of an epoch; None for a pass
        self._step = 0  # before this epoch
        self._iterators, self._read, length = progress.position or (0, None, data.num_batches)
        self._num_batches = None if data.repeats else length
        self._found: int | None = None  # batches of each pass, where the first one has shown it
        self._is_within = "on_epoch_begin" in progress.begun  # an epoch that is resumed
        self._is_made = self._read is None  # the last iterator
        data.adapter.on_epoch_end()  # as Keras does before the first epoch
        fit_calls.skip_epochs(data.adapter, len(progress.history), self._passes_done())
        for _ in range(self._iterators - (not self._is_made)):
            data.parts.iterator()  # reads nothing

    def _passes_done(self) -> int:
        """Return how many passes are read to their end, of a run that is resumed."""
        if self._data.repeats and self._read:
            return self._read // self._data.pass_length(self._read)
        if self._requested is None and self._data.num_batches:
            return self._iterators // 2  # Keras makes two for each
        return self._iterators - (self._read is not None)

    def begin(self, step: int, done: int = 0) -> None:
        self._step = step
        self._data.adapter.on_epoch_begin()
        if self._read is None or (self._requested is None and not self._is_within):
            if not self._is_made:
                self._data.parts.iterator()
            self._open()
        elif not self._is_made:
            skipped = self._read + done
            if self._data.repeats and skipped:
                skipped %= self._data.pass_length(skipped)
            self.iterator = self._data.parts.iterator(skipped)
        self._is_made, self._is_within = True, False

    @property
    def steps(self) -> int | None:
        length = self._num_batches or self._found
        if length is None:
            return self._requested
        if self._data.form == "divided":
            # As under fit: a PyDataset that has become longer ends as its first pass did.
            length = min(length, fit_calls.current_length(self._data.adapter) or length)
        left = length - (self._read or 0)
        return left if self._requested is None else min(self._requested, left)

    @property
    def may_end_early(self) -> bool:
        data = self._data
        is_known = data.num_batches or self._found or data.is_endless or data.repeats
        return not is_known

    def is_end(self, rows: np.ndarray, step: int) -> bool:
        if rows.min() < rows.max():
            raise DataError(self._difference(rows, step))
        self.has_ended = bool(rows.max() < 0)
        return self.has_ended

    def _difference(self, rows: np.ndarray, step: int) -> str:
        """Return how the batches of a step differ between the tasks."""
        peers, data = self._data.cluster.role.peers, self._data
        of_tasks = rows[:: len(rows) // len(peers)].astype(int).tolist()
        least, most = (peers[of_tasks.index(bound(of_tasks))] for bound in (min, max))
        number = (self._read or 0) + step - self._step
        if min(of_tasks) < 0:
            lengths = f"end after {number:,} batches on {least}, and go on on {most}"
        else:
            sizes = f"{max(of_tasks):,} rows on {most} and {min(of_tasks):,} on {least}"
            lengths = f"differ in batch {number + 1:,}, which has {sizes}"
        return f"{data.what} {lengths}: {REMEDY}{suspects()}"

    def end(self, steps: int) -> None:
        self._read = (self._read or 0) + steps
        is_short = steps < (self._requested or 0)
        if self.has_ended or self._read == self._found:
            self._found = self._read if self._data.has_constant_length else None
            self._read, self.has_ended = None, False
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

    def has_empty_replicas(self, step: int) -> bool:
        position = (self._read or 0) + step - self._step
        return self._data.may_leave_replicas_idle(position, self._found)

    @property
    def position(self) -> list[int | None]:
        """Iterators made, batches read of the last one, and batches of a pass.

        Read is None if the iterator has ended, and a pass has 0 if an iterator reads all passes.
        """
        return [self._iterators, self._read, 0 if self._data.repeats else self._num_batches]

    def _open(self) -> None:
        self.iterator: Any = self._data.parts.iterator()
        self._iterators += 1
        self._read = 0
