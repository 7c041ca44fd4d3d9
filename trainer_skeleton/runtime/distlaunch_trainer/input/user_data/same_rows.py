"""Rows that all tasks must read alike, compared by fingerprints before the first step.

Tasks compare what is known of their data sets, and their first batches:

- Data without random operations must be equal. So must targets that Python code makes.
- Random operations may draw other numbers on each task, e.g. to flip images: only rows that another
  task has at another position are an error, and equal targets are enough.
- What may be random numbers or other rows is a warning.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.rendezvous import Rendezvous
from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.batch_rows import count_rows, take_rows, tensors_in
from distlaunch_trainer.keras_compat.keras_random import is_random, operations_in
from distlaunch_trainer.task.explain import project_path

from .row_identity import checksums

_ROWS = 64  # of a batch that are compared
# Of arrays that may have gigabytes: other data or another order differ in these, too.
_SOURCE_ROWS = 1000
_ROUNDING = 1e-2  # of the largest number of a batch, as predictions in bfloat16 differ
_PYTHON = re.compile(r"PyFunc")

# Of shard(), take() and skip(), range(), and shuffle().
_PARTS = ("_num_shards", "_index", "_count", "_start", "_stop", "_step", "_seed", "_seed2")

_SUSPECTS = {
    r"\b(default_rng|RandomState|Random)\(\s*\)": "no seed",
    r"(?<![\w.])set\(|frozenset\(": "the order of a set",
    r"\b(listdir|scandir|i?glob|iterdir|rglob)\(": "files in any order",
    r"\.shard\(": "rows of this task only",
}
_SORTED = re.compile(r"\bsorted\(|\.sort\(")
REMEDY = (
    "all tasks must read the same rows in the same order, and each trains on its part of a batch: "
    "seed what draws numbers (default_rng(0)), sort sets and lists of files, and do not shard by "
    "task"
)


@dataclass(frozen=True)
class DataFacts:
    """What is known of a data set before it is read."""

    length: int  # batches, as ``cardinality()`` returns it; or rows of arrays
    # A fingerprint of the arrays and file names that it begins with, and of the parts of these that
    # are taken, e.g. by ``shard()``.
    sources: str
    is_python: bool  # whether Python code makes or changes its rows
    is_random: bool  # whether random operations do


def facts_of(dataset: tf.data.Dataset, *, is_of_keras: bool = False) -> DataFacts:
    """Return what is known of a data set before it is read.

    The functions of Keras that read arrays draw the same on all tasks.
    """
    chain = list(chain_of(dataset))
    functions = [function for each in chain for function in each._functions()]  # noqa: SLF001
    operations = {node.op for each in functions for node in operations_in(each.function.graph)}
    digest = hashlib.sha256()
    for each in chain:
        for tensor in getattr(each, "_tensors", ()):
            digest.update(_sample(tensor))
        parts = [tf.get_static_value(getattr(each, name)) for name in _PARTS if hasattr(each, name)]
        if parts:
            digest.update(f"{type(each).__name__} {parts}".encode())
    return DataFacts(
        int(dataset.cardinality()),
        digest.hexdigest()[:15],
        not is_of_keras and any(map(_PYTHON.search, operations)),
        not is_of_keras and any(map(is_random, operations)),
    )


def facts_of_arrays(tensors: Iterable[Any], rows: int) -> DataFacts:
    """Return what is known of arrays, whose length is a number of rows."""
    digest = hashlib.sha256(b"".join(map(_sample, tensors)))
    return DataFacts(rows, digest.hexdigest()[:15], is_python=False, is_random=False)


_numbers = itertools.count()  # all tasks compare the same data sets, in the same order


class RowComparison:
    """Compares the first batch of a data set with the other tasks'."""

    problem = ""  # how the batches differ, if they do

    def __init__(
        self,
        rendezvous: Rendezvous,
        warn: Callable[[str], None],
        facts: DataFacts,
        what: str,  # the data set, for messages: ``the data of fit()``
    ) -> None:
        self._rendezvous = rendezvous
        self._warn = warn
        self._facts = facts
        self._name = f"rows/{next(_numbers)}"
        self._what = what
        self._is_done = False

    def after(self, position: tf.Tensor, data: Any, value: tf.Tensor) -> tf.Tensor:
        """Return a value when the tasks' batches at position 0 have been compared.

        If they differ, a ``tf.errors.OpError`` is raised; see `problem`.
        """
        x, y, *_ = *(data if isinstance(data, tuple) else (data,)), None

        def compare() -> tf.Tensor:
            return tf.numpy_function(
                self._compare, [_first_checksums(x), _first_checksums(y)], tf.int64
            )

        done = tf.cond(tf.equal(position, 0), compare, lambda: tf.constant(0, tf.int64))
        with tf.control_dependencies([done]):
            return tf.identity(value)

    def _compare(self, x: np.ndarray, y: np.ndarray) -> np.int64:
        if not self._is_done:
            self._is_done = True
            own = {"x": x.tolist(), "y": y.tolist()}
            all_tasks = self._rendezvous.exchange(
                self._name, own, f"to read the first batch of {self._what}"
            )
            for name, other in zip(self._rendezvous.peers, all_tasks, strict=True):
                self._judge(own, other, name)
        return np.int64(0)

    def _judge(self, own: dict[str, list[int]], other: dict[str, list[int]], name: str) -> None:
        x_differ, y_differ = own["x"] != other["x"], own["y"] != other["y"]
        if not x_differ and not y_differ:
            return
        has_targets = len(set(own["y"])) > 1
        facts = self._facts
        part = "targets" if y_differ else "inputs"
        problem = f"the {part} of the first batch of {self._what} differ on {name}"
        is_error = (
            not (facts.is_random or facts.is_python)
            or (y_differ and not facts.is_random)
            or _are_moved(own["x"], other["x"])
        )
        if is_error:
            self.problem = f"{problem}: {REMEDY}{suspects()}"
            raise DataError(self.problem)
        if y_differ or not has_targets:
            self._warn(
                f"{problem}: random operations may draw other numbers on each task, but the rows "
                f"must be the same{suspects()}"
            )


def gather_facts(own: DataFacts, rendezvous: Rendezvous, what: str) -> list[DataFacts]:
    """Return the facts of the data set on each task, by rank; a collective."""
    return [
        DataFacts(**each) for each in rendezvous.exchange("data", asdict(own), f"to read {what}")
    ]


def check_equal(
    facts: Sequence[DataFacts], peers: Sequence[str], what: str, unit: str = "batches"
) -> None:
    """Refuse data sets that do not begin with the same rows on all tasks, or differ in length."""
    for name, other in zip(peers, facts, strict=True):
        if other.length != facts[0].length:
            lengths = f"{facts[0].length:,} on {peers[0]} and {other.length:,} on {name}"
            problem = f"the numbers of {unit} of {what} differ, {lengths}"
        elif other.sources != facts[0].sources:
            problem = f"the rows or file names of {what} differ on {peers[0]} and {name}"
        else:
            continue
        raise DataError(f"{problem}: {REMEDY}{suspects()}")


def check_same_batch(batch: Any, rendezvous: Rendezvous, what: str) -> None:
    """Refuse a batch that differs between the tasks by more than rounding; a collective.

    A part of it may be predictions of the tasks, so that some numbers are compared, and no hashes.
    """
    tensors = tf.nest.flatten(tensors_in(batch), expand_composites=True)
    shapes, numbers = [list(tensor.shape) for tensor in tensors], [*map(_numbers_in, tensors)]
    all_tasks = rendezvous.exchange("batch", [shapes, numbers], f"to compare {what}")
    for name, (other_shapes, others) in zip(rendezvous.peers, all_tasks, strict=True):
        if other_shapes != shapes or not all(map(_are_close, numbers, others)):
            raise DataError(f"{what} differs on {name}: {REMEDY}{suspects()}")


def _numbers_in(tensor: tf.Tensor) -> list[float]:
    """Return some elements of a tensor; of texts their checksums."""
    flat = tf.reshape(tensor, [-1])
    positions = np.linspace(0, max(len(flat) - 1, 0), min(len(flat), _ROWS)).astype(np.int64)
    values = tf.gather(flat, positions).numpy()
    if values.dtype == object:
        return [float(zlib.crc32(text)) for text in values]
    return np.nan_to_num(values.astype(float)).tolist()


def _are_close(own: list[float], other: list[float]) -> bool:
    return np.allclose(own, other, rtol=0, atol=_ROUNDING * np.abs(own).max(initial=0))


def suspects() -> str:
    """Return the lines of the project that may give each task other rows, for the end of a message.

    At most three.
    """
    files = list(_sources())
    lines = [
        line
        for pattern, reason in _SUSPECTS.items()
        for path, name in files
        for line in _lines_with(pattern, reason, path, name)
    ]
    return f"; see {', '.join(lines[:3])}" if lines else ""


def _sources() -> Iterator[tuple[Path, Path]]:
    """Yield the files of the project that are loaded, with their paths in it."""
    files = [
        sys.argv[0],
        *(getattr(module, "__file__", None) for module in [*sys.modules.values()]),
    ]
    for file in dict.fromkeys(filter(None, files)):
        path = Path(file)
        if path.suffix == ".py" and (name := project_path(file)) and path.is_file():
            yield path, name


def _lines_with(pattern: str, reason: str, path: Path, name: Path) -> Iterator[str]:
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        code = line.partition("#")[0]
        if re.search(pattern, code) and not _SORTED.search(code):
            yield f"{name}, line {number} ({reason})"


def chain_of(dataset: Any) -> Iterator[Any]:
    """Yield a data set and those that it is made of."""
    yield dataset
    for each in dataset._inputs():  # noqa: SLF001
        yield from chain_of(each)


def _sample(tensor: Any) -> bytes:
    """Return some rows of a tensor; nothing of one that has no rows.

    Of paths the names, as the folders may be other ones on other machines.
    """
    if not isinstance(tensor, tf.Tensor) or not hasattr(tensor, "numpy") or not tensor.shape.rank:
        return b""
    rows = tensor.shape[0]
    if tensor.dtype == tf.variant:  # ragged rows, of which TensorFlow returns no values
        return str(rows).encode()
    numbers = np.unique(np.linspace(0, max(rows - 1, 0), min(rows, _SOURCE_ROWS)).astype(np.int64))
    with tf.device("CPU"):
        sample = tf.gather(tensor, numbers).numpy()
    if sample.dtype == object:
        sample = np.array([text.rpartition(b"/")[2] for text in sample.ravel()], object)
    return _bytes_of(sample) + str(rows).encode()


def _first_checksums(part: Any) -> tf.Tensor:
    """Return a checksum for each of the first rows of a part of a batch, which may be None."""
    if not tensors_in(part):
        return tf.zeros([0], tf.int64)
    return checksums(take_rows(part, tf.range(tf.minimum(count_rows(part), _ROWS))))


def _bytes_of(value: Any) -> bytes:
    array = np.asarray(value)
    return repr(array.tolist()).encode() if array.dtype == object else array.tobytes()


def _are_moved(own: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether two batches have equal rows at different positions."""
    if len(set(own)) < len(own):
        return False
    positions = {row: position for position, row in enumerate(own)}
    return any(positions.get(row, position) != position for position, row in enumerate(other))
