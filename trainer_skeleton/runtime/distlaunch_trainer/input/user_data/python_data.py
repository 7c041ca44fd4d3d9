"""Batches that Python code makes: a ``keras.utils.PyDataset`` or a generator, as under ``fit``."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from itertools import chain, count, islice
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.batch_rows import as_tensor, count_rows, map_tensors
from distlaunch_trainer.keras_compat.fit_calls import tensor_spec

from .user_dataset import BatchSource

Dataset = tf.data.Dataset

_SAMPLE_BATCHES = 2  # which give types and shapes, as under fit


def py_dataset_source(data: keras.utils.PyDataset, seed: int, *, shuffles: bool) -> BatchSource:
    """Return a PyDataset as a source of batches.

    Its hooks ``on_epoch_begin`` and ``on_epoch_end`` are called around each pass (the end when the
    next pass begins, so not that of the last one), and before a resumed run enters a pass, around
    all earlier ones. With ``shuffles`` each pass has an order of its own, as under ``fit``.
    """
    size = data.num_batches
    numbers = count() if size is None else range(size)
    sample = [data[number] for number in islice(numbers, _SAMPLE_BATCHES)]
    batches = _Batches(sample, "PyDataset")

    def one_pass(number: int, first: int) -> Iterator[Any]:
        data.on_epoch_begin()
        numbers: Iterable[int] = count(first)
        if size is not None:
            numbers = list(range(size))
            if shuffles:
                random.Random(f"{seed} {number}").shuffle(numbers)  # noqa: S311 - no secret
            numbers = numbers[first:]
        yield from _read_batches(data, numbers)
        data.on_epoch_end()

    def passes(number: int, first: int) -> Iterator[Any]:
        for _ in range(number):
            data.on_epoch_begin()
            data.on_epoch_end()
        yield from one_pass(number, first)
        for later in count(number + 1):
            yield from one_pass(later, 0)

    cardinality = tf.data.INFINITE_CARDINALITY if size is None else size
    return BatchSource(
        one_pass=batches.dataset(lambda: one_pass(0, 0), cardinality),
        passes=lambda number, first: batches.dataset(lambda: passes(number, first)),
        kind="PyDataset",
        batch=batches.rows,
        resumes_exactly=True,
    )


def generator_source(generator: Iterator[Any], restart: Callable[[], Iterator[Any]]) -> BatchSource:
    """Return a generator of batches as a source without an end, for which it is restarted."""
    sample = list(islice(generator, _SAMPLE_BATCHES))
    batches = _Batches(sample, "generator")
    generators = chain([chain(sample, generator)], (restart() for _ in count()))

    def endless() -> Iterator[Any]:
        for following in generators:
            first = next(following, None)
            if first is None:
                raise DataError(
                    "the generator of trainer/data.py has ended: have it yield batches without "
                    "end, or lower --steps-per-epoch or --epochs"
                )
            yield first
            yield from following

    return BatchSource(
        one_pass=batches.dataset(endless),
        passes=lambda _, first: batches.dataset(endless).skip(first),
        kind="generator",
        batch=batches.rows,
    )


class _Batches:
    """Batches of Python's as a data set, with types and shapes of the first ones."""

    def __init__(self, sample: list[Any], kind: str) -> None:
        if not sample:
            raise DataError(f"the {kind} has no batches: see trainer/data.py")
        self._kind = kind
        self._structure = keras.tree.lists_to_tuples(sample[0])
        tensors = [self._tensors(batch) for batch in sample]
        self._signature = tensor_spec(tensors)
        self.rows = int(count_rows(tensors[0]))

    def dataset(
        self, batches: Callable[[], Iterator[Any]], cardinality: int = tf.data.INFINITE_CARDINALITY
    ) -> Dataset:
        """Return batches as a data set of so many elements."""
        none = tf.experimental.Optional.empty(None)

        def elements() -> Iterator[Any]:
            for batch in map(self._tensors, batches()):
                yield tf.nest.map_structure(lambda part: none if part is None else part, batch)

        made = Dataset.from_generator(elements, output_signature=self._signature)
        return made.apply(tf.data.experimental.assert_cardinality(cardinality))

    def _tensors(self, batch: Any) -> Any:
        """Return a batch of tensors, checked for its structure; data sets stack lists."""
        batch = keras.tree.lists_to_tuples(batch)
        try:
            tf.nest.assert_same_structure(self._structure, batch)
        except (TypeError, ValueError):
            raise DataError(
                f"the {self._kind} of trainer/data.py gives batches of different structures: "
                "the first one differs from a later one"
            ) from None
        return map_tensors(as_tensor, batch)


def _read_batches(data: keras.utils.PyDataset, numbers: Iterable[int]) -> Iterator[Any]:
    """Yield batches in the order of ``numbers``, read by as many workers as the data set wants."""
    if data.use_multiprocessing:
        pool = ProcessPoolExecutor(
            max(1, data.workers), initializer=_set_data_of_process, initargs=(data,)
        )
        read = _read_in_process
    elif data.workers > 1:
        pool, read = ThreadPoolExecutor(data.workers), data.__getitem__
    else:
        yield from (data[number] for number in numbers)
        return
    pending: deque[Future[Any]] = deque()
    try:
        for number in numbers:
            pending.append(pool.submit(read, number))
            if len(pending) > data.max_queue_size:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_data_of_process: list[keras.utils.PyDataset] = []  # of a process that reads batches


def _set_data_of_process(data: keras.utils.PyDataset) -> None:
    _data_of_process[:] = [data]


def _read_in_process(number: int) -> Any:
    return _data_of_process[0][number]
