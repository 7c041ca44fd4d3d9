"""Where each record lies in TFRecord files.

A TFRecord file is a chain of records: length (8 bytes, little endian), masked CRC-32C of the length
(4), data, masked CRC-32C of the data (4)
(https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details). One pass over
the lengths gives the number of records and the byte offset of every k-th of them; TensorFlow can
then enter the file at such an offset without reading what lies before.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import tensorflow as tf

from .cluster import Team
from .errors import DataError, StorageError
from .storage import is_remote, join, write_whole

EVERY = 64
"""A byte offset is kept for every record whose number is a multiple of this."""

_CACHE_NAME = ".records-index.json"
_FRAME = struct.Struct("<QI")
_OVERHEAD = 16
_CHUNK = 4 << 20


@dataclass(frozen=True)
class FileIndex:
    """What one file holds.

    Attributes
    ----------
    path
        The file.
    size, changed
        Bytes, and the time of the last change in nanoseconds: when either differs, the file is read
        anew.
    records
        Number of records.
    offsets
        Byte offset of records 0, ``EVERY``, 2 · ``EVERY`` ...; of the unpacked data for a GZIP
        file.
    compression
        ``""`` or ``"GZIP"``.
    """

    path: str
    size: int
    changed: int
    records: int
    offsets: tuple[int, ...]
    compression: str

    def entry(self, record: int) -> tuple[int, int]:
        """Return where to enter for ``record``: a byte offset, and how many records to skip."""
        if self.compression:
            return 0, record
        return self.offsets[record // EVERY], record % EVERY


def index_files(pattern: str, team: Team, fallback_dir: str) -> list[FileIndex]:
    """Index the files that match ``pattern``, the work shared between the tasks of ``team``.

    The result is kept in a file beside the data (in ``fallback_dir`` where that is read-only) and
    reused for files whose size and time of change are still the same.

    Raises
    ------
    DataError
        If no file matches, the tasks see different files, or a file is damaged.
    """
    files = _matching(pattern)
    _check_same_files(files, pattern, team)
    places = _cache_places(pattern, fallback_dir)
    known = _load_cache(places, files)
    stale = team.sum(np.array([not _holds(known, *file) for file in files], np.int64))
    to_scan = [file for file, is_stale in zip(files, stale, strict=True) if is_stale]
    if to_scan:
        known.update(_scan_together(to_scan, team))
        if team.role.is_chief:
            wanted = {path for path, _, _ in files}
            kept = [entry for path, entry in known.items() if path in wanted or _is_there(path)]
            _save_cache(places, kept)
    return [known[path] for path, _, _ in files]


def _holds(known: dict[str, FileIndex], path: str, size: int, changed: int) -> bool:
    """Return whether a file is still the one that was indexed."""
    entry = known.get(path)
    return entry is not None and (entry.size, entry.changed) == (size, changed)


def _is_there(path: str) -> bool:
    try:
        return bool(tf.io.gfile.exists(path))
    except tf.errors.OpError:
        return False


def _matching(pattern: str) -> list[tuple[str, int, int]]:
    """Return path, size and time of change of each file that matches, sorted by path."""
    try:
        # The index itself may lie beside the data, and what was not yet written whole.
        paths = sorted(p for p in tf.io.gfile.glob(pattern) if not _last_part(p).startswith("."))
        stats = [_stat(path) for path in paths]
    except tf.errors.OpError as error:
        raise DataError(f"the data {pattern} cannot be listed: {error.message}") from error
    except OSError as error:
        raise DataError(f"the data {pattern} cannot be listed: {error.strerror}") from error
    if not paths:
        raise DataError(f"no file matches {pattern}: see trainer/data.py")
    return [(path, *stat) for path, stat in zip(paths, stats, strict=True)]


def _last_part(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _stat(path: str) -> tuple[int, int]:
    """Return a file's size and the time of its last change in nanoseconds."""
    stat = tf.io.gfile.stat(path)
    # TensorFlow's own is in whole seconds for local files.
    changed = stat.mtime_nsec if is_remote(path) else Path(path).stat().st_mtime_ns
    return int(stat.length), int(changed)


def _check_same_files(files: list[tuple[str, int, int]], pattern: str, team: Team) -> None:
    names_and_sizes = json.dumps([(_last_part(path), size) for path, size, _ in files])
    if not team.all_equal(zlib.crc32(names_and_sizes.encode())):
        raise DataError(
            f"the tasks see different files for {pattern} ({team.role.name} sees {len(files)}): "
            f"put the data where all of them read the same, such as gs://"
        )


def _scan_together(files: list[tuple[str, int, int]], team: Team) -> dict[str, FileIndex]:
    """Scan each file in one of the tasks, and tell all tasks what was found."""
    mine = _share_by_size(files, team.role.size)[team.role.rank]
    found = [scan(*files[number]) for number in mine]
    message = [
        value
        for number, file in zip(mine, found, strict=True)
        for value in (
            number,
            file.records,
            bool(file.compression),
            len(file.offsets),
            *file.offsets,
        )
    ]
    indexed = {}
    for numbers in team.gather(np.array(message, np.int64)):
        for number, records, packed, offsets in _unpacked(numbers):
            path, size, changed = files[number]
            compression = "GZIP" if packed else ""
            indexed[path] = FileIndex(path, size, changed, records, offsets, compression)
    return indexed


def _unpacked(numbers: np.ndarray) -> Iterator[tuple[int, int, bool, tuple[int, ...]]]:
    at = 0
    while at < len(numbers):
        number, records, packed, count = (int(n) for n in numbers[at : at + 4])
        yield number, records, bool(packed), tuple(numbers[at + 4 : at + 4 + count].tolist())
        at += 4 + count


def _share_by_size(files: Sequence[tuple[str, int, int]], tasks: int) -> list[list[int]]:
    """Deal the files out, the largest first, always to the task with the fewest bytes."""
    shares: list[list[int]] = [[] for _ in range(tasks)]
    load = [0] * tasks
    for number in sorted(range(len(files)), key=lambda n: -files[n][1]):
        lightest = load.index(min(load))
        shares[lightest].append(number)
        load[lightest] += files[number][1]
    return shares


def scan(path: str, size: int, changed: int) -> FileIndex:
    """Read the lengths of all records of one file.

    Raises
    ------
    DataError
        If the file is cut off or a length does not match its checksum; names the byte offset.
    """
    with tf.io.gfile.GFile(path, "rb") as file:
        try:
            compression = "GZIP" if file.read(2) == b"\x1f\x8b" else ""
            file.seek(0)
            stream = gzip.GzipFile(fileobj=_Readable(file)) if compression else file
            records, offsets = _walk(path, stream.read)
        except tf.errors.OpError as error:
            raise DataError(f"{path} cannot be read: {error.message}") from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path} is damaged GZIP: {error}") from error
    return FileIndex(path, size, changed, records, tuple(offsets), compression)


def _walk(path: str, read: Callable[[int], bytes]) -> tuple[int, list[int]]:
    """Follow the chain of lengths; return the number of records and every k-th offset."""
    records, offsets, known_crcs = 0, [], {}
    buffer, start, at = b"", 0, 0
    while True:
        while at + _FRAME.size <= start + len(buffer):
            length, crc = _FRAME.unpack_from(buffer, at - start)
            if known_crcs.get(length) != crc:
                if masked_crc(struct.pack("<Q", length)) != crc:
                    raise DataError(
                        f"{path} is damaged at byte {at} (record {records}): the length's checksum "
                        f"does not match; write the file anew"
                    )
                known_crcs[length] = crc
            if records % EVERY == 0:
                offsets.append(at)
            records += 1
            at += length + _OVERHEAD
        buffer, start = _advance(read, buffer, start, at)
        if len(buffer) < _FRAME.size:
            break
    end = start + len(buffer)
    if at != end:
        raise DataError(
            f"{path} is cut off: record {max(records - 1, 0)} should end at byte "
            f"{max(at, end + 1)}, the file ends at {end}; write the file anew"
        )
    return records, offsets


def _advance(read: Callable[[int], bytes], buffer: bytes, start: int, at: int) -> tuple[bytes, int]:
    """Return a buffer that begins at ``at``, or where the file ends before that, and its start."""
    while True:
        if at < start + len(buffer):
            buffer, start = buffer[at - start :], at
        else:
            start, buffer = start + len(buffer), b""
        if start == at and len(buffer) >= _FRAME.size:
            return buffer, start
        more = read(_CHUNK)
        if not more:
            return buffer, start
        buffer += more


class _Readable:
    """A GFile as ``gzip`` wants it: it reads into no buffer of the caller's."""

    def __init__(self, file: BinaryIO) -> None:
        self.read = file.read
        self.seek = file.seek
        self.tell = file.tell


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC_TABLE = _crc_table()


def masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C (Castagnoli) that TFRecord files carry."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _cache_places(pattern: str, fallback_dir: str) -> list[str]:
    """Return where the index may lie: beside the data, or in the job folder by the data's name."""
    folder = pattern.rpartition("/")[0] or "."
    fallback = join(fallback_dir, f"index-{zlib.crc32(folder.encode()):08x}.json")
    return [fallback] if set(folder) & set("*?[") else [join(folder, _CACHE_NAME), fallback]


def _load_cache(places: list[str], files: list[tuple[str, int, int]]) -> dict[str, FileIndex]:
    """Return the entries of all files, this pattern's or another's; what cannot be read is none."""
    known: dict[str, FileIndex] = {}
    wanted = set(files)
    for place in reversed(places):
        try:
            with tf.io.gfile.GFile(place) as file:
                cache = json.load(file)
            if cache["crc32"] != _crc32(cache["files"]):
                continue
            entries = [_entry(item) for item in cache["files"]]
        except (tf.errors.OpError, ValueError, KeyError, TypeError):
            continue
        for entry in entries:
            # An old entry beside the data does not take the place of one that still holds.
            if entry.path not in known or (entry.path, entry.size, entry.changed) in wanted:
                known[entry.path] = entry
    return known


def _entry(item: dict[str, object]) -> FileIndex:
    entry = FileIndex(**{**item, "offsets": tuple(item["offsets"])})
    if entry.records and len(entry.offsets) != (entry.records - 1) // EVERY + 1:
        raise ValueError("not an index of this version")
    return entry


def _crc32(files: object) -> int:
    return zlib.crc32(json.dumps(files).encode())


def _save_cache(places: list[str], entries: list[FileIndex]) -> None:
    files = [vars(entry) for entry in entries]
    text = json.dumps({"crc32": _crc32(files), "files": files})
    for place in places:
        with suppress(StorageError):
            return write_whole(place, text.encode())
    return None
