"""What ``trainer/data.py`` may give: records in files, or arrays."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import keras
import tensorflow as tf

from .cluster import Cluster
from .errors import DataError, gist
from .record_index import FileIndex, Index, index_files

Dataset = tf.data.Dataset

_BUFFER_BYTES = 256 << 10
_FRAME_BYTES = 16  # of a record, around its data
_MOST_NAMED = 3  # files in a message


@dataclass(frozen=True)
class Records:
    """Examples in TFRecord files (plain or GZIP).

    Parameters
    ----------
    pattern
        Glob of the files: a local path, ``/gcs/BUCKET/...`` or ``gs://BUCKET/...``.
    parse
        From one serialized record (scalar string tensor) to ``(x, y)`` or
        ``(x, y, sample_weight)``, without a batch dimension.
    parse_batch
        Instead of ``parse``: from a vector of records to the same with a batch dimension; faster
        where TensorFlow's operations take vectors, as ``tf.io.parse_example`` does.
    class_weight
        The weight of each class of ``y`` in the loss, 1 for those left out, as ``model.fit`` takes
        it.
    """

    pattern: str
    parse: Callable[[tf.Tensor], Any] | None = None
    parse_batch: Callable[[tf.Tensor], Any] | None = None
    class_weight: Mapping[int, float] | None = None

    def __post_init__(self) -> None:
        if (self.parse is None) == (self.parse_batch is None):
            raise DataError("Records takes one of parse= and parse_batch=: see trainer/data.py")

    def open(self, cluster: Cluster, fallback_dir: str, *, numbered: bool = False) -> RecordItems:
        """Index the files; a collective."""
        return RecordItems(
            self, index_files(self.pattern, cluster, fallback_dir), numbered=numbered
        )


@dataclass(frozen=True)
class Arrays:
    """Examples in memory: arrays, or structures of arrays, of the same length.

    Parameters
    ----------
    x, y, sample_weight
        What ``model.fit`` would take; the first dimension of each array counts the examples.
    class_weight
        The weight of each class of ``y`` in the loss, 1 for those left out.
    """

    x: Any
    y: Any = None
    sample_weight: Any = None
    class_weight: Mapping[int, float] | None = None

    def __post_init__(self) -> None:
        for name, part in vars(self).items():
            arrays = [each for each in part if each is not None] if isinstance(part, list) else []
            if not all(hasattr(array, "shape") for array in arrays):
                raise DataError(
                    f"Arrays takes arrays, and {name} is a list: "
                    f"give np.asarray({name}), see trainer/data.py"
                )
        if self.y is None and self.sample_weight is not None:
            raise DataError("Arrays with sample_weight need y: see trainer/data.py")

    def open(
        self,
        cluster: Cluster,
        fallback_dir: str,  # noqa: ARG002
        *,
        numbered: bool = False,
    ) -> ArrayItems:
        """Check that all arrays have one length, on all tasks."""
        items = ArrayItems(self, numbered=numbered)
        if not cluster.all_equal(items.examples):
            raise DataError(
                f"the arrays do not have the same length on all tasks ({cluster.role.name} has "
                f"{items.examples:,}): give every task the whole data, see trainer/data.py"
            )
        return items


class ArrayItems:
    """The items of `Arrays` are the numbers of the examples."""

    index_bytes = data_bytes = 0

    def __init__(self, source: Arrays, *, numbered: bool = False) -> None:
        given = [_without_lists(part) for part in (source.x, source.y, source.sample_weight)]
        last = max(n for n, part in enumerate(given) if part is not None)
        self._data = tf.nest.map_structure(tf.convert_to_tensor, tuple(given[: last + 1]))
        self._weigh = _weighing(source.class_weight)
        self.numbered = numbered
        lengths = {len(array) for array in tf.nest.flatten(self._data) if array is not None}
        if len(lengths) > 1:
            raise DataError(f"the arrays differ in length: {sorted(lengths)}: see trainer/data.py")
        self.examples = lengths.pop()
        self.item_bytes = 8

    def between(self, start: int, stop: int) -> list[tuple[int, ...]]:
        """Return the segments that hold the examples ``start ... stop-1``."""
        return [(start, stop)]

    def read(self, buffer_bytes: int, start: tf.Tensor, stop: tf.Tensor) -> Dataset:  # noqa: ARG002
        """Return the items of a segment."""
        return Dataset.range(start, stop)

    def parsed(self, items: Dataset, batched: Callable[[Dataset], Dataset]) -> Dataset:
        """Return batches of examples, with their numbers where these are requested."""

        def pick(numbers: tf.Tensor, *rest: tf.Tensor) -> tuple[Any, ...]:
            data = self._weigh(tf.nest.map_structure(lambda a: tf.gather(a, numbers), self._data))
            return (data, numbers) if self.numbered else data, *rest

        return batched(items).map(pick, num_parallel_calls=tf.data.AUTOTUNE)

    def culprit(self, start: int, stop: int) -> str | None:  # noqa: ARG002
        """Arrays have no damaged records."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return what ``summary.json`` records of the data, besides the number of examples."""
        return {"kind": "arrays"}

    def empty_files_note(self) -> str | None:
        """Arrays have no files."""
        return None


class RecordItems:
    """The items of `Records` are serialized records."""

    def __init__(self, source: Records, index: Index, *, numbered: bool = False) -> None:
        self._source = source
        # By itself, as AutoGraph looks at nothing else of a pipeline.
        self._compiled_parse = tf.function(source.parse or source.parse_batch)
        self._files = files = index.files
        self._weigh = _weighing(source.class_weight)
        self.numbered = numbered
        self.index_bytes = index.bytes_read
        self._ends = list(accumulate(file.records for file in files))
        self.examples = self._ends[-1]
        size = sum(file.size for file in files)
        self.data_bytes = 0 if self.compressed else size
        self.item_bytes = size // max(1, self.examples)
        self._paths = tf.constant([file.path for file in files])
        self._compressions = tf.constant([file.compression for file in files])

    @property
    def compressed(self) -> bool:
        """Whether some file can only be read from its beginning."""
        return any(file.compression for file in self._files)

    def describe(self) -> dict[str, Any]:
        """Return what ``summary.json`` records of the data, besides the number of examples."""
        files = [
            {
                "path": file.path,
                "bytes": file.size,
                "modified_ns": file.changed,
                "examples": file.records,
            }
            for file in self._files
        ]
        return {"kind": "records", "pattern": self._source.pattern, "files": files}

    def empty_files_note(self) -> str | None:
        """Return a warning that names files without records, if there are some among others."""
        empty = [file.path for file in self._files if not file.records]
        if not empty or not self.examples:
            return None
        more = len(empty) - _MOST_NAMED
        names = ", ".join(empty[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        return (
            f"{len(empty):,} of {len(self._files):,} files {'is' if len(empty) == 1 else 'are'} "
            f"empty ({names}): the others hold {self.examples:,} examples"
        )

    def between(self, start: int, stop: int) -> list[tuple[int, ...]]:
        """Return segments of these examples.

        A segment is (number of its first example, file, byte offset, records to skip, records).
        """
        segments = []
        number = bisect_right(self._ends, start)
        while start < stop:
            first = self._ends[number] - self._files[number].records
            end = min(stop, self._ends[number])
            if end > start:
                entry = self._files[number].entry(start - first)
                segments.append((start, number, *entry, end - start))
            start, number = max(start, end), number + 1
        return segments

    def read(  # noqa: PLR0917 - a segment, and how to read it
        self,
        buffer_bytes: int,
        number: tf.Tensor,
        file: tf.Tensor,
        offset: tf.Tensor,
        skip: tf.Tensor,
        count: tf.Tensor,
    ) -> Dataset:
        """Return the records of a segment, entering its file at the byte offset."""
        # The public class has no byte offsets; the raw operation keeps them inside flat_map alone.
        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=[self._paths[file]],
            compression_type=self._compressions[file],
            buffer_size=buffer_bytes,
            byte_offsets=[offset],
        )
        spec = tf.TensorSpec([], tf.string)
        records = tf.data.experimental.from_variant(variant, spec).skip(skip).take(count)
        if not self.numbered:
            return records
        numbers = Dataset.range(number, number + count)
        return Dataset.zip((numbers, records)).map(_with_bytes)

    def parsed(self, items: Dataset, batched: Callable[[Dataset], Dataset]) -> Dataset:
        """Return batches of parsed examples, with their numbers where these are requested."""
        parse = self._parsing(self._compiled_parse)
        if self._source.parse_batch is not None:
            batches = batched(items)
            done = batches.map(
                lambda records, *rest: (parse(records), *rest), num_parallel_calls=tf.data.AUTOTUNE
            )
        else:
            take = (lambda *item: parse(item)) if self.numbered else parse
            done = batched(items.map(take, num_parallel_calls=tf.data.AUTOTUNE))
        return done.map(self._weighed) if self._source.class_weight else done

    def _parsing(self, parse: Callable[[tf.Tensor], Any]) -> Callable[[Any], Any]:
        """Return a function of records, or of numbers and records where these are requested."""
        if not self.numbered:
            return parse
        return lambda numbered: (parse(numbered[1]), numbered[0])

    def _weighed(self, data: Any, *rest: tf.Tensor) -> tuple[Any, ...]:
        if not self.numbered:
            return self._weigh(data), *rest
        return (self._weigh(data[0]), data[1]), *rest

    def culprit(self, start: int, stop: int) -> str | None:
        """Return what is wrong with which of the examples ``start ... stop-1``, if any is."""
        for number, file, offset, skip, count in self.between(start, stop):
            first = start - (self._ends[file] - self._files[file].records)
            segment = (number, file, offset, skip, count)
            reader = Dataset.from_tensors(
                tuple(tf.constant(part, tf.int64) for part in segment)
            ).flat_map(partial(self.read, _BUFFER_BYTES))
            problem = self._first_problem(iter(reader), self._files[file], first)
            if problem:
                return problem
            start += count
        return None

    def _first_problem(
        self, reader: Iterator[tf.Tensor], file: FileIndex, record: int
    ) -> str | None:
        while True:
            try:
                item = next(reader)
            except StopIteration:
                return None
            except tf.errors.OpError as error:
                entry, skip = file.entry(record)
                place = f"byte {entry}" if not skip else f"{skip} records after byte {entry}"
                return f"{file.path} is damaged at record {record} ({place}): {gist(error)}"
            serialized = item[1] if self.numbered else item
            try:
                if self._source.parse is not None:
                    self._source.parse(serialized)
                else:
                    self._source.parse_batch(serialized[tf.newaxis])
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                return f"parse failed on record {record} of {file.path}: {gist(error)}"
            record += 1


def _with_bytes(number: tf.Tensor, record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a record behind its number and the bytes that it takes in its file."""
    length = tf.cast(tf.strings.length(record), tf.int64) + _FRAME_BYTES
    return tf.stack([number, length]), record


def _without_lists(arrays: Any) -> Any:
    """Return a list of arrays as a tuple, as which tf.data hands it on."""
    return tuple(arrays) if isinstance(arrays, list) else arrays


def _weighing(class_weight: Mapping[int, float] | None) -> Callable[[Any], Any]:
    """Return what puts the weights of classes beside a batch ``(x, y)``, as ``fit`` does.

    Raises
    ------
    DataError
        If the data has weights of its own, or more than one ``y``; as the function is called.
    """
    if not class_weight:
        return lambda data: data
    last = max(class_weight) + 1
    by_class = [class_weight.get(n, 1.0) for n in range(last + 1)]
    weights = tf.constant(by_class, keras.config.floatx())

    def weigh(data: Any) -> tuple[Any, Any, tf.Tensor]:
        if not isinstance(data, tuple) or len(data) != 2 or tf.nest.is_nested(data[1]):
            raise DataError("class_weight takes data (x, y) with one y: see trainer/data.py")
        x, y = data
        if y.shape.rank > 1 and y.shape[-1] > 1:
            classes = tf.argmax(y, -1, tf.int32)
        else:
            flat = tf.squeeze(y, -1) if y.shape.rank > 1 else y
            classes = tf.cast(tf.round(tf.cast(flat, tf.float32)), tf.int32)
        return x, y, tf.gather(weights, tf.minimum(classes, last))

    return weigh
