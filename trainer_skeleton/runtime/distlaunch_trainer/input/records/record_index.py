"""The byte offset of each record in TFRecord files.

One pass over the lengths of a file's records gives their number, and the byte offset of every k-th
of them; TensorFlow can then enter the file at such an offset without reading what is before it.
"""

from __future__ import annotations

import base64
import gzip
import json
import mmap
import stat
import struct
import zlib
from array import array
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.errors import DataError, StorageError
from distlaunch_trainer.task.storage import explained, is_remote, join, write_whole

EVERY = 16
"""A byte offset is kept for every record whose number is a multiple of this."""

# A record is its length, the CRC-32C of the length (4 bytes), the data, and their CRC-32C (4)
# https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
# TensorFlow compares the checksums when it reads the records.
_LENGTH = struct.Struct("<Q")
FRAME_BYTES = 16  # of a record, around its data
# Of a remote file, each read of which is a request.
_BLOCK = 4 << 20
_SCANNED_AT_ONCE = 16
_CACHE_NAME = ".records-index.json"
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}


@dataclass(frozen=True)
class FileIndex:
    """What one file holds; it is read again when its size or time of change differs."""

    path: str
    size: int  # bytes
    changed: int  # the time of the last change in nanoseconds
    records: int
    offsets: array[int]  # of records 0, ``EVERY``, 2 · ``EVERY`` ...; unpacked bytes of a GZIP file
    unpacked: int = 0  # bytes of a GZIP file's records, 0 for a plain file
    first: int = 0  # the first record that is used; `records` are used from there on

    @property
    def used_bytes(self) -> int:
        """Bytes of the records that are used, on average, unpacked."""
        if self.unpacked:
            return self.unpacked
        is_whole = not self.first and len(self.offsets) == -(-self.records // EVERY)
        if is_whole:
            return self.size
        start = self.offsets[self.first // EVERY]
        end = (self.first + self.records) // EVERY
        stop = self.offsets[end] if end < len(self.offsets) else self.size
        return stop - start


@dataclass(frozen=True)
class Index:
    """What the files of a pattern hold."""

    files: list[FileIndex]  # sorted by path; those of a split may be parts of files
    bytes_read: int  # of data, by this task; the others have read the rest


def index_files(pattern: str | Sequence[str], cluster: Cluster, fallback_dir: str) -> Index:
    """Index the files that match patterns, the work shared between the tasks of ``cluster``.

    The result is kept in a file beside the data (in ``fallback_dir`` where that is read-only) and
    reused for files whose size and time of change are still the same.
    """
    files = list_files(pattern)
    pattern = pattern if isinstance(pattern, str) else pattern[0]
    check_same_files([(_last_part(path), size) for path, size, _ in files], pattern, cluster)
    cache_paths = _cache_paths(pattern, fallback_dir)
    known = _load_cache(cache_paths, files)
    stale = cluster.all_reduce_sum(
        np.array([not _is_current(known, *file) for file in files], np.int64)
    )
    to_scan = [file for file, is_stale in zip(files, stale, strict=True) if is_stale]
    bytes_read = 0
    if to_scan:
        scanned, bytes_read = _scan_together(to_scan, cluster)
        known.update(scanned)
        if cluster.role.is_chief:
            _save_cache(cache_paths, list(known.values()))
    return Index([known[path] for path, _, _ in files], bytes_read)


def _is_current(known: dict[str, FileIndex], path: str, size: int, changed: int) -> bool:
    """Return whether a file is still the one that was indexed."""
    entry = known.get(path)
    return entry is not None and (entry.size, entry.changed) == (size, changed)


def list_files(pattern: str | Sequence[str]) -> list[tuple[str, int, int]]:
    """Return path, size and time of change of each file that matches, sorted by path."""
    with explained("cannot list the data", str(pattern)):
        # The index itself may lie beside the data, and what was not yet written whole.
        paths = sorted(p for p in tf.io.gfile.glob(pattern) if not _last_part(p).startswith("."))
        stats = [_stat(path) for path in paths]
    if not paths:
        raise DataError(f"no file matches {pattern}: see trainer/data.py")
    return [(path, *facts) for path, facts in zip(paths, stats, strict=True)]


def _last_part(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _stat(path: str) -> tuple[int, int]:
    """Return a file's size and the time of its last change in nanoseconds."""
    if is_remote(path):
        remote = tf.io.gfile.stat(path)
        return int(remote.length), int(remote.mtime_nsec)
    local = Path(path).stat()  # TensorFlow's own has the time in whole seconds
    kind = stat.S_IFMT(local.st_mode)
    if kind != stat.S_IFREG:  # a named pipe would never end
        raise DataError(
            f"{path} is {_KINDS.get(kind, 'a device')}, and data are read from regular files: "
            f"remove it, or change the pattern in trainer/data.py"
        )
    return local.st_size, local.st_mtime_ns


def check_same_files(files: Sequence[Any], pattern: str, cluster: Cluster) -> None:
    """Check that all tasks see the same files, by what JSON holds of them; a collective."""
    if not cluster.all_equal(zlib.crc32(json.dumps(files).encode())):
        raise DataError(
            f"the tasks see different files for {pattern} ({cluster.role.name} sees "
            f"{len(files):,}): put the data where all of them read the same, such as gs://"
        )


def _scan_together(
    files: list[tuple[str, int, int]], cluster: Cluster
) -> tuple[dict[str, FileIndex], int]:
    """Scan each file in one of the tasks, and send the result to all tasks.

    Return the files by path, and how many bytes this task has read.
    """
    by_size = sorted(range(len(files)), key=lambda number: -files[number][1])
    mine = by_size[cluster.role.rank :: cluster.role.num_workers]
    with ThreadPoolExecutor(_SCANNED_AT_ONCE) as pool:  # a bucket answers each file slowly
        indexes = dict(zip(mine, pool.map(lambda number: scan(*files[number]), mine), strict=True))
    facts = np.zeros((len(files), 2), np.int64)
    for number, file in indexes.items():
        facts[number] = file.records, file.unpacked
    facts = cluster.all_reduce_sum(facts)
    ends = np.cumsum(-(-facts[:, 0] // EVERY))
    offsets = np.zeros(ends[-1], np.int64)
    for number, file in indexes.items():
        offsets[ends[number] - len(file.offsets) : ends[number]] = file.offsets
    parts = np.split(cluster.all_reduce_sum(offsets), ends[:-1])
    indexed = {}
    for file, (records, unpacked), part in zip(files, facts.tolist(), parts, strict=True):
        indexed[file[0]] = FileIndex(*file, records, array("q", part.tobytes()), unpacked)
    return indexed, sum(files[number][1] for number in mine)


def scan(path: str, size: int, changed: int) -> FileIndex:
    """Read the lengths of all records of one file."""
    with explained("cannot read the data", path), _open(path) as file:
        is_packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        try:
            if is_packed or is_remote(path):
                stream = gzip.GzipFile(fileobj=file) if is_packed else file
                records, offsets, end = record_offsets(path, iter(lambda: stream.read(_BLOCK), b""))
            else:  # the data between the lengths are not read
                mapped = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)] if size else []
                records, offsets, end = record_offsets(path, mapped)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path} is damaged GZIP: {error}") from error
    return FileIndex(path, size, changed, records, offsets, end if is_packed else 0)


def _open(path: str) -> Any:
    # TensorFlow's own class copies what it reads several times.
    return tf.io.gfile.GFile(path, "rb") if is_remote(path) else Path(path).open("rb", buffering=0)


def record_offsets(path: str, blocks: Iterable[bytes | mmap.mmap]) -> tuple[int, array[int], int]:
    """Return the number of records, the byte offset of every ``EVERY``-th one, and the bytes."""
    offsets, records = array("q"), 0
    origin, rest, at = 0, b"", 0  # the first byte in memory, what is left of it, the next record
    for block in blocks:
        memory = rest + block if rest else block
        end = origin + len(memory)
        while at <= end - _LENGTH.size:
            if not records % EVERY:
                offsets.append(at)
            records += 1
            at += _LENGTH.unpack_from(memory, at - origin)[0] + FRAME_BYTES
        origin = min(at, end)
        rest = memory[len(memory) - (end - origin) :]
    size = origin + len(rest)
    if at != size:
        raise DataError(
            f"{path} is damaged or cut off: record {max(records - 1, 0)} should end at byte "
            f"{max(at, size + 1)}, the file ends at {size}; write the file again"
        )
    return records, offsets, size


def _cache_paths(pattern: str, fallback_dir: str) -> list[str]:
    """Return where the index may lie: beside the data, or in the job folder by the data's name."""
    folder = pattern.rpartition("/")[0] or "."
    fallback = join(fallback_dir, f"index-{zlib.crc32(folder.encode()):08x}.json")
    return [fallback] if set(folder) & set("*?[") else [join(folder, _CACHE_NAME), fallback]


def _load_cache(cache_paths: list[str], files: list[tuple[str, int, int]]) -> dict[str, FileIndex]:
    """Return the entries of all files, this pattern's or another's; what cannot be read is none."""
    known: dict[str, FileIndex] = {}
    wanted = set(files)
    for path in reversed(cache_paths):
        try:
            with tf.io.gfile.GFile(path) as file:
                cache = json.load(file)
            if cache["crc32"] != _crc32(cache["files"]):
                continue
            entries = [_entry(item) for item in cache["files"]]
        except (tf.errors.OpError, ValueError, KeyError, TypeError):
            continue
        for entry in entries:
            # An old entry beside the data does not replace one that is current.
            if entry.path not in known or (entry.path, entry.size, entry.changed) in wanted:
                known[entry.path] = entry
    return known


def _entry(item: dict[str, object]) -> FileIndex:
    offsets = array("q", base64.b64decode(item["offsets"]))
    entry = FileIndex(**{**item, "offsets": offsets})
    if entry.records and len(entry.offsets) != (entry.records - 1) // EVERY + 1:
        raise ValueError("not an index of this version")
    return entry


def _crc32(files: object) -> int:
    return zlib.crc32(json.dumps(files).encode())


def _save_cache(cache_paths: list[str], entries: list[FileIndex]) -> None:
    # Millions of offsets as JSON's numbers take long to read, and much memory.
    files = [
        {**vars(entry), "offsets": base64.b64encode(entry.offsets).decode()} for entry in entries
    ]
    text = json.dumps({"crc32": _crc32(files), "files": files})
    for path in cache_paths:
        with suppress(StorageError):
            return write_whole(path, text.encode())
    return None
