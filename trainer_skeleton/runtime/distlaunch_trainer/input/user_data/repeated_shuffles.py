"""The orders of data sets that repeat shuffled elements, and are read more than once.

A reading that ends before the data, as an epoch of so many steps, leaves the seeds of the next one
to how far TensorFlow has read ahead: `fit` of Keras alone may have other orders in each run, and
tasks would have other ones than each other. Here an order depends on the number of readings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from .same_rows import chain_of
from .work_division import DatasetGraph

Dataset = tf.data.Dataset

_TIMES_READ = "_distlaunch_times_read"  # by calls, an attribute of shuffles that were iterated over
_IS_WARNED_OF = "_distlaunch_is_warned_of"  # an attribute of those of which that was reported


def remember_readings() -> None:
    """Have the shuffles of data sets remember from now on that something has iterated over them."""
    iterate = Dataset.__iter__

    @functools.wraps(iterate)
    def remember(self: Dataset) -> Iterator[Any]:
        for each in chain_of(self):
            if type(each).__name__ == "_ShuffleDataset" and not hasattr(each, _TIMES_READ):
                setattr(each, _TIMES_READ, 0)
        return iterate(self)

    Dataset.__iter__ = remember


class RepeatedShuffles:
    """The shuffles of a data set that repeats their elements."""

    def __init__(self, dataset: Dataset) -> None:
        chain = list(chain_of(dataset))
        repeats = any(type(each).__name__ == "_RepeatDataset" for each in chain)
        self._shuffles = [each for each in chain if type(each).__name__ == "_ShuffleDataset"]
        self._shuffles *= repeats

    def __bool__(self) -> bool:
        return bool(self._shuffles)

    def warn_if_read(self, warn: Callable[[str], None], what: str) -> None:
        """Warn, once, where the data have been read before."""
        if not any(hasattr(each, _TIMES_READ) for each in self._shuffles):
            return
        if not all(hasattr(each, _IS_WARNED_OF) for each in self._shuffles):
            warn(
                f"{what} shuffle before repeat() and were read before: their order is the same on "
                "any number of workers, but not that of Keras alone, where it depends on how far "
                "TensorFlow has read ahead; for that order, create the data set again before this "
                "call"
            )
        for each in self._shuffles:
            setattr(each, _IS_WARNED_OF, True)

    def next_number(self) -> int:
        """Return how many iterators of calls have read these shuffles, before one more does."""
        times: int = max(getattr(each, _TIMES_READ, 0) for each in self._shuffles)
        for each in self._shuffles:
            setattr(each, _TIMES_READ, times + 1)
        return times


def renewed(dataset: Dataset, number: int) -> Dataset:
    """Return a data set whose shuffles draw their orders from a number."""
    graph = DatasetGraph.of(dataset)
    return (
        graph.dataset(dataset.element_spec) if graph and graph.renew_shuffles(number) else dataset
    )
