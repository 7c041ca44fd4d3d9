"""The step of a replica that is traced, for the functions of Keras that are replaced.

Keras gives losses, moments, optimizers and random draws no argument for the step. A replica is
traced in a thread of its own, and so has a context of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from .step_timing import StepTimer

if TYPE_CHECKING:
    from .simulation import SimulatedReplica


@dataclass(frozen=True)
class StepRows:
    """The rows of a step that a replica has: each ``R``-th of a global batch that is divided."""

    local_rows: tf.Tensor  # of this replica (scalar, int64)
    global_rows: tf.Tensor  # of all replicas (scalar, int64)
    replicas: int
    may_be_empty: bool  # whether there may be no row but a placeholder, which does not count
    is_divided: bool = False  # whether its batch is a part of a global batch, not one of its own
    # Of a batch that is divided among the tasks first, the replicas of each; otherwise 1.
    per_task: int = 1
    size: int | None = None  # rows of its data, if they are constant as XLA needs them

    def local_fraction(self, dtype: Any) -> tf.Tensor:
        """Return the fraction of the rows that this replica has, 0 … 1."""
        return tf.cast(self.local_rows, dtype) / tf.cast(self.global_rows, dtype)

    def is_nonempty(self, dtype: Any) -> tf.Tensor:
        """Return 1, or 0 if this replica has only a placeholder row."""
        return tf.cast(self.local_rows > 0, dtype)


@dataclass(frozen=True)
class StepContext:
    """What is known of the step that is traced in this thread."""

    rows: StepRows | None = None  # None outside of a step
    timer: StepTimer | None = None  # of the exchange of gradients
    in_xla: bool = False  # XLA compiles what is traced, and so cannot exchange anything
    normalizes_losses: bool = False  # what Keras reduces is made a mean over the global batch
    divisors: list[tf.Tensor] | None = None  # gets those of losses, which are not rescaled then
    added_losses: list[Any] | None = None  # gets the layers and their losses of add_loss()
    # Is called by optimizers in place of an update, see `intercept_updates`; None: they update.
    update: Callable[..., Any] | None = None
    # Whether gradients are multiplied by the replica's fraction of the rows before they are summed,
    # so that the loss is not.
    weighs_gradients: bool = False
    simulated: SimulatedReplica | None = None  # whose part of a step is computed, none is trained
    # Called where rows of all replicas are gathered: an execution must be one step then.
    note_gather: Callable[[], None] | None = None
    # Gets the results that metrics return, with the metrics' names.
    metric_results: list[tuple[Any, str]] | None = None

    @property
    def has_shares(self) -> bool:
        """Whether the numbers of a step are a replica's shares of those of the global batch."""
        return self.update is not None and not self.weighs_gradients


_NO_STEP = StepContext()
_thread = threading.local()


def current() -> StepContext:
    """Return the context of this thread."""
    return getattr(_thread, "context", _NO_STEP)


def note_gather() -> None:
    """Note that replicas exchange rows in the step that is traced."""
    if current().note_gather is not None:
        current().note_gather()


@contextmanager
def extended(**changes: Any) -> Iterator[None]:
    """Change some attributes of this thread's context in here."""
    before = current()
    _thread.context = replace(before, **changes)
    try:
        yield
    finally:
        _thread.context = before
