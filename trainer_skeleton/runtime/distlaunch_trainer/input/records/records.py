"""Examples in TFRecord files: ``Records``."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import DataError, summarize
from distlaunch_trainer.input.examples.example_cache import ExampleCache, ExampleParser
from distlaunch_trainer.input.examples.example_source import (
    DEFAULT,
    Examples,
    ExampleSource,
    InputOptions,
)
from distlaunch_trainer.task.storage import is_remote

from .record_index import EVERY, FRAME_BYTES, FileIndex, Index, index_files

Dataset = tf.data.Dataset

_REMOTE_READS, _LOCAL_READS = 16, 4  # ranges of examples read at once
_HELD_BYTES = 256 << 20  # of data that each task keeps in memory, to have any record by its number
_MOST_NAMED = 3  # files in a message
_RECORD = tf.TensorSpec([], tf.string)
_NUMBER = tf.TensorSpec([2], tf.int64)  # of a record, and the bytes that it takes


@dataclass(frozen=True)
class Records(Examples):
    """Examples in TFRecord files: plain ones, or GZIP files of no more than 256 MiB unpacked.

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

    def open(
        self, cluster: Cluster, fallback_dir: str, options: InputOptions = DEFAULT
    ) -> RecordSource:
        """Index the files; a collective."""
        index = index_files(self.pattern, cluster, fallback_dir)
        return RecordSource(self, index, options, cluster.role.num_workers)


class RecordSource(ExampleSource):
    """The examples of `Records`; an item is a serialized record."""

    def __init__(self, records: Records, index: Index, options: InputOptions, tasks: int) -> None:
        super().__init__(records.class_weight)
        self._records = records
        self._files = files = index.files
        self.options = options
        self.index_bytes = index.bytes_read
        self._ends = list(accumulate(file.records for file in files))
        self.examples = self._ends[-1]
        size = sum(file.used_bytes for file in files)
        self.by_number = size <= _HELD_BYTES
        self.data_bytes = size
        packed = next((file for file in files if file.unpacked), None)
        if packed and not self.by_number:
            raise DataError(
                f"{packed.path} is a GZIP file, which is read from its beginning only: that is "
                f"done for data of {_HELD_BYTES >> 20} MiB, unpacked, and these have "
                f"{size >> 20:,}; write plain TFRecord files"
            )
        self.item_bytes = size // max(1, self.examples)
        is_remote_data = any(is_remote(file.path) for file in files)
        self._reads_at_once = _REMOTE_READS if is_remote_data else _LOCAL_READS
        self._table = _FileTable(files)
        self._parser = ExampleParser(
            records.parse or records.parse_batch,
            _RECORD if records.parse else tf.TensorSpec([None], tf.string),
            examples=self.examples,
            tasks=tasks,
            options=replace(options, cache=options.cache if records.parse else None),
        )
        self._cache = self._parser.cache
        if options.cache and records.parse_batch and not self.by_number:  # of the records
            self._cache = ExampleCache(self.examples, options.cache)
        self._has_numbers = options.numbered or self._cache is not None
        self.facts = {
            "kind": "records",
            "pattern": records.pattern,
            "files": [
                {
                    "path": file.path,
                    "bytes": file.size,
                    "modified_ns": file.changed,
                    "examples": file.records,
                }
                for file in files
            ],
        }
        self.item_spec = (_NUMBER, _RECORD) if self._has_numbers else _RECORD

    def input_facts(self) -> list[str]:
        """Return what the examples are read from, as parts of a line."""
        count = len(self._files)
        return [f"{count:,} file{'s' * (count > 1)}"]

    @property
    def warnings(self) -> list[str]:
        """A warning that names files without records, if there are some among others."""
        empty = [file.path for file in self._files if not file.records]
        if not empty or not self.examples:
            return []
        more = len(empty) - _MOST_NAMED
        names = ", ".join(empty[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        verb = "is" if len(empty) == 1 else "are"
        files = f"{len(empty):,} of {len(self._files):,} files {verb} empty ({names})"
        return [f"{files}: the others hold {self.examples:,} examples"]

    def read(self, start: Any, stop: Any) -> Dataset:
        """Return the items of the examples ``start ... stop-1``, one by one."""
        records = self._records_in(start, stop)
        if not self._has_numbers:
            return records
        return Dataset.zip((Dataset.range(start, stop), records)).map(_with_bytes)

    def _records_in(self, start: Any, stop: Any) -> Dataset:
        """Return the records of the examples ``start ... stop-1``, from files' byte offsets on."""
        start, stop = (tf.cast(bound, tf.int64) for bound in (start, stop))
        bounds = [start, tf.maximum(start, stop - 1)]
        places = tf.searchsorted(self._table.ends, bounds, side="right", out_type=tf.int64)
        first, last = tf.unstack(tf.minimum(places, len(self._files) - 1))
        files = Dataset.range(first, last + 1)
        return files.flat_map(lambda file: self._read_file(file, start, stop))

    def _read_file(self, file: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> Dataset:
        """Return the records of those examples that are in a file."""
        table = self._table
        first = tf.maximum(start, table.begins[file])
        count = tf.maximum(tf.minimum(stop, table.ends[file]) - first, 0)
        offset, skipped = table.entry(file, first - table.begins[file])
        # Small beside what is read, as the last buffer reaches beyond it.
        size = tf.clip_by_value(count * self.item_bytes // 32, 4 << 10, 256 << 10)
        # The public class has no byte offsets; the raw operation keeps them inside flat_map alone.
        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=[table.paths[file]],
            compression_type=table.compressions[file],
            buffer_size=size,
            byte_offsets=[offset],
        )
        return tf.data.experimental.from_variant(variant, _RECORD).skip(skipped).take(count)

    def items_at(self, numbers: tf.Tensor) -> Any:
        """Return the items of the examples with these numbers (vector, int64)."""
        records = tf.gather(self._held, numbers)
        return _with_bytes(numbers, records) if self._has_numbers else records

    @cached_property
    def _held(self) -> tf.Tensor:
        """All records, which are read when the first one is needed (vector of strings)."""
        with tf.init_scope(), tf.device("CPU"):
            try:
                bounds = self._table.begins, self._table.ends
                files = Dataset.from_tensor_slices(bounds).interleave(
                    lambda begin, end: self._records_in(begin, end).batch(end - begin + 1),
                    cycle_length=self._reads_at_once,
                    num_parallel_calls=self._reads_at_once,
                    deterministic=True,
                )
                return tf.concat(list(files), 0)
            except tf.errors.OpError as error:
                problem = self.find_bad_record(range(self.examples)) or summarize(error)
                raise DataError(problem) from error

    def read_ranges(self, ranges: Dataset) -> Dataset:
        """Return a vector of items for each range of examples; several are read at once."""
        return ranges.interleave(
            self._read_range,
            cycle_length=self._reads_at_once,
            num_parallel_calls=self._reads_at_once,
            deterministic=True,
        )

    def _read_range(self, start: tf.Tensor, stop: tf.Tensor) -> Dataset:
        """Return a vector of the items of a range of examples."""
        rows = tf.maximum(stop - start, 1)
        if self._cache is None:
            return self.read(start, stop).batch(rows)
        is_kept = self._cache.has(start, stop) & (stop > start)
        items = self.read(start, tf.where(is_kept, start, stop)).batch(rows).map(self._keep)
        none_or_one = Dataset.range(tf.cast(is_kept, tf.int64))
        return items.concatenate(none_or_one.map(lambda _: self._kept_items(start, stop)))

    def _keep(self, numbers: tf.Tensor, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return items that were read; the cache of `parse_batch` keeps the records."""
        if self._records.parse_batch is not None:
            records = self._cache.put(numbers[:, 0], records)
        return numbers, records

    def _kept_items(self, start: tf.Tensor, stop: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the items of examples in the cache, for which no bytes are read."""
        numbers = tf.range(start, stop)
        of_items = tf.stack([numbers, tf.zeros_like(numbers)], axis=1)
        if self._records.parse_batch is not None:
            return of_items, self._cache.get(numbers)
        return of_items, tf.fill([stop - start], "")

    def batch(self, items: Dataset, rows: int) -> Dataset:
        """Return batches of items, which ``parse`` has parsed one by one."""
        if self._records.parse_batch is not None:
            return super().batch(items, rows)
        return items.unbatch().map(self._parse, num_parallel_calls=tf.data.AUTOTUNE).batch(rows)

    def examples_of(self, batch: Any) -> Any:
        """Return the examples of a batch, with their numbers if these are requested."""
        if self._records.parse_batch is not None:
            batch = self._parse(*batch) if self._has_numbers else self._parse(batch)
        return super().examples_of(batch)

    def _parse(self, *item: tf.Tensor) -> Any:
        """Return the examples of records, with their numbers if these are requested."""
        number = item[0][0] if self._records.parse and self._has_numbers else None
        parsed = self._parser(item[-1], number)
        return (parsed, item[0]) if self.options.numbered else parsed

    @tf.autograph.experimental.do_not_convert
    def find_bad_record(self, numbers: Sequence[int]) -> str | None:
        """Return what is wrong with the first bad one of consecutive examples, if any is."""
        start, stop = int(min(numbers)), int(max(numbers)) + 1
        records = self._serialized(start, stop)
        if self._records.parse_batch is not None:
            records = records.batch(1)
        good = 0
        try:
            for _ in records.map(self._parser.function, num_parallel_calls=tf.data.AUTOTUNE):
                good += 1
        except tf.errors.OpError as error:
            return self._problem(start + good, error)
        return None

    def _serialized(self, start: int, stop: int) -> Dataset:
        bounds = Dataset.from_tensors((tf.constant(start, tf.int64), tf.constant(stop, tf.int64)))
        return bounds.flat_map(self._records_in)

    def _problem(self, number: int, error: Exception) -> str:
        """Return what is wrong with an example at which an error came up."""
        place = bisect_right(self._ends, number)
        file = self._files[place]
        row = number - (self._ends[place] - file.records)  # of those that are used
        try:
            (record,) = self._serialized(number, number + 1)
        except (tf.errors.OpError, ValueError) as damage:
            offset, skipped = map(int, self._table.entry(place, row))
            location = f"{skipped} records after byte {offset}" if skipped else f"byte {offset}"
            return (
                f"{file.path} is damaged at record {row + file.first} ({location}): "
                f"{summarize(damage)}"
            )
        try:
            if self._records.parse is not None:
                self._records.parse(record)
            else:
                self._records.parse_batch(record[tf.newaxis])
        except Exception as raised:  # noqa: BLE001 - whatever a user's function raises
            error = raised  # without the graph around it
        return f"parse failed on record {row + file.first} of {file.path}: {summarize(error)}"


class _FileTable:
    """Which file has which examples, and where to enter it, as vectors."""

    def __init__(self, files: list[FileIndex]) -> None:
        counts = np.array([file.records for file in files], np.int64)
        entries = np.array([len(file.offsets) for file in files], np.int64)
        offsets = [np.array(file.offsets, np.int64) for file in files]
        with tf.device("CPU"):
            self.paths = tf.constant([file.path for file in files])
            self.compressions = tf.constant(["GZIP" if file.unpacked else "" for file in files])
            self.begins = tf.constant(np.cumsum(counts) - counts)  # the first example of each
            self.ends = tf.constant(np.cumsum(counts))
            self._firsts = tf.constant([file.first for file in files], tf.int64)
            self._first_entries = tf.constant(np.cumsum(entries) - entries)
            # One more for an empty last file.
            self._offsets = tf.constant(np.concatenate([*offsets, [0]]), tf.int64)

    def entry(self, file: Any, record: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return where to enter a file for one of its examples: byte offset, records to skip."""
        record += self._firsts[file]
        is_packed = tf.not_equal(self.compressions[file], "")
        zero = tf.constant(0, tf.int64)
        offset = self._offsets[self._first_entries[file] + record // EVERY]
        return tf.where(is_packed, zero, offset), tf.where(is_packed, record, record % EVERY)


def _with_bytes(numbers: tf.Tensor, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a record, or several, behind numbers and the bytes that each takes in its file."""
    lengths = tf.cast(tf.strings.length(records), tf.int64) + FRAME_BYTES
    return tf.stack([numbers, lengths], axis=-1), records
