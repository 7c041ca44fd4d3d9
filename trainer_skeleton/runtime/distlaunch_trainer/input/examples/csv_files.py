"""Examples in CSV files: ``Csv``."""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.records.record_index import check_same_files, list_files
from distlaunch_trainer.task.storage import explained

from .arrays import Arrays, ArraySource
from .example_source import DEFAULT, Examples, InputOptions

_MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL"})
_TYPES = ("int64", "float32", "string")


@dataclass(frozen=True)
class Csv(Examples):
    """Examples in CSV files whose first line names the columns; each task holds all in memory.

    An example is ``(features, label)``, the features a dict of one value by column, as
    ``keras.layers.Input((1,))`` takes them. A column is int64 if all its values are whole numbers,
    float32 if all are numbers or missing (NaN), otherwise string. Missing is nothing, NA, N/A, NaN
    or null; a run warns of missing numbers.

    Parameters
    ----------
    pattern
        Glob of the files: a local path, ``/gcs/BUCKET/...`` or ``gs://BUCKET/...``.
    label
        The column of the label.
    columns
        The columns of the features; by default all others.
    dtypes
        Types of columns, ``int64``, ``float32`` or ``string``, in place of the inferred ones.
    classes
        The values of the label, of which it becomes the number, in their order.
    sample_weight
        The column of the weights.
    delimiter
        Between the values.
    class_weight
        The weight of each class of the label in the loss, 1 for those left out.
    """

    pattern: str
    label: str
    columns: Sequence[str] | None = None
    dtypes: Mapping[str, str] | None = None
    classes: Sequence[str] | None = None
    sample_weight: str | None = None
    delimiter: str = ","
    class_weight: Mapping[int, float] | None = None

    def __post_init__(self) -> None:
        for column, dtype in (self.dtypes or {}).items():
            if dtype not in _TYPES:
                raise DataError(
                    f"Csv takes dtypes= {' or '.join(_TYPES)}, got {dtype!r} for {column}"
                )

    def load(self) -> Arrays:
        """Return the examples as arrays, e.g. to adapt layers to them in ``create_model()``.

        Raises
        ------
        DataError
            If a value cannot be used; names file, line and column.
        StorageError
            If a file cannot be read.
        """
        return self._arrays(_read_table(self.pattern, self.delimiter))

    def open(
        self, cluster: Cluster, fallback_dir: str, options: InputOptions = DEFAULT
    ) -> ArraySource:
        """Read the files, and check that all tasks see the same; a collective."""
        table = _read_table(self.pattern, self.delimiter)
        check_same_files(table.files, self.pattern, cluster)
        arrays = self._arrays(table)
        source = arrays.open(cluster, fallback_dir, options)
        source.warnings = list(self._missing(table, arrays))
        source.facts = {"kind": "csv", "pattern": self.pattern}
        return source

    def _arrays(self, table: _Table) -> Arrays:
        special = {self.label, self.sample_weight}
        names = self.columns or [name for name in table.columns if name not in special]
        x = {name: self._column(table, name)[:, np.newaxis] for name in names}
        weights = self._column(table, self.sample_weight) if self.sample_weight else None
        return Arrays(x, self._label(table), weights, self.class_weight)

    def _missing(self, table: _Table, arrays: Arrays) -> Iterator[str]:
        """Yield a warning for each column with missing numbers."""
        for name, values in {**arrays.x, self.sample_weight: arrays.sample_weight}.items():
            if values is None or values.dtype != np.float32 or not np.isnan(values).any():
                continue
            rows = np.flatnonzero(np.isnan(values))
            yield (
                f"{table.location(rows[0])}, column {name}: {len(rows):,} of {len(values):,} "
                "numbers are missing, here the first, and become NaN: fill them in, or leave their "
                "rows out"
            )

    def _label(self, table: _Table) -> np.ndarray:
        if self.classes is not None:
            numbers = {value: number for number, value in enumerate(self.classes)}
            values = table.column(self.label)
            for row, value in enumerate(values):
                if value not in numbers:
                    raise DataError(
                        f"{table.location(row)}, column {self.label}: {value!r} is not one of "
                        f"classes= {', '.join(self.classes)}"
                    )
            return np.array([numbers[value] for value in values], np.int64)
        values = self._column(table, self.label)
        if values.dtype == object:
            raise DataError(
                f"{table.location(0)}: the label {self.label} is text: give classes=, the values "
                "in the order of their numbers"
            )
        if values.dtype == np.float32 and np.isnan(values).any():
            row = int(np.flatnonzero(np.isnan(values))[0])
            raise DataError(f"{table.location(row)}, column {self.label}: the label is missing")
        return values

    def _column(self, table: _Table, name: str) -> np.ndarray:
        """Return the values of a column, converted to its type."""
        texts = table.column(name)
        dtype = (self.dtypes or {}).get(name)
        if dtype is None:
            dtype = next(kind for kind in _TYPES if _converted(texts, kind) is not None)
        values = _converted(texts, dtype)
        if values is None:
            row = next(row for row, text in enumerate(texts) if _converted([text], dtype) is None)
            raise DataError(
                f"{table.location(row)}, column {name}: {texts[row]!r} is not {_ARTICLES[dtype]}"
            )
        return values


_ARTICLES = {"int64": "a whole number", "float32": "a number"}


@dataclass(frozen=True)
class _Table:
    """The rows of files, as text."""

    columns: list[str]
    rows: list[list[str]]  # values in the order of `columns`
    locations: list[tuple[str, int]]  # file and line of each row
    files: list[tuple[str, int]]  # name and CRC-32 of each

    def column(self, name: str) -> list[str]:
        if name not in self.columns:
            path, _ = self.locations[0]
            raise DataError(f"{path} has no column {name!r}, but {', '.join(self.columns)}")
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def location(self, row: int) -> str:
        path, line = self.locations[row]
        return f"{path} line {line}"


def _read_table(pattern: str, delimiter: str) -> _Table:
    """Return the rows of all files of a pattern, sorted by path."""
    paths = [path for path, _, _ in list_files(pattern)]
    columns: list[str] = []
    rows: list[list[str]] = []
    locations: list[tuple[str, int]] = []
    files: list[tuple[str, int]] = []
    for path in paths:
        text = _read_text(path)
        files.append((path.rpartition("/")[2], zlib.crc32(text.encode())))
        names, lines = _parse(path, text, delimiter)
        columns = columns or names
        if sorted(names) != sorted(columns):
            raise DataError(
                f"{path} has the columns {', '.join(names)}, and {paths[0]} has "
                f"{', '.join(columns)}"
            )
        order = [names.index(name) for name in columns]
        rows += [[row[at] for at in order] for _, row in lines]
        locations += [(path, number) for number, _ in lines]
    if not rows:
        raise DataError(f"{', '.join(paths[:3])}: no line after the one that names the columns")
    return _Table(columns, rows, locations, files)


def _read_text(path: str) -> str:
    try:
        with explained("cannot read the data", path), tf.io.gfile.GFile(path, "rb") as file:
            return file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 at byte {error.start}: convert it") from error


def _parse(path: str, text: str, delimiter: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the names of the columns, and the number and values of each line that is not empty."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    lines: list[tuple[int, list[str]]] = []
    try:
        lines.extend(
            (reader.line_num, [value.strip() for value in values]) for values in reader if values
        )
    except csv.Error as error:
        raise DataError(f"{path} line {reader.line_num}: {error}") from error
    if not lines:
        raise DataError(f"{path} is empty: its first line must name the columns")
    (_, names), *rows = lines
    if len(set(names)) < len(names):
        raise DataError(f"{path} names a column twice: {', '.join(names)}")
    for number, values in rows:
        if len(values) != len(names):
            raise DataError(
                f"{path} line {number} has {len(values)} values, and the first line names "
                f"{len(names)} columns"
            )
    return names, rows


def _converted(texts: list[str], dtype: str) -> np.ndarray | None:
    """Return texts as an array of a type, None if some are not of it."""
    if dtype == "string":
        return np.array(texts, object)
    try:
        if dtype == "int64":
            return np.array([int(text) for text in texts], np.int64)
        return np.array([np.nan if t in _MISSING else float(t) for t in texts], np.float32)
    except (ValueError, OverflowError):
        return None
