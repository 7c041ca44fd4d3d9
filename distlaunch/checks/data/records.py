"""How many records there are in TFRecord files, counted without reading their data.

A record is its length (8 bytes, little endian), a checksum of the length (4), the data, and a
checksum of the data (4)
(https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details).
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MOST = 1_000_000
"""Records after which no more are counted."""

SECONDS = 2.0
"""Time after which no more are counted: long records on a slow disk."""

_HEADER = struct.Struct("<QI")
_AROUND = 16  # bytes of a record that are not its data
_GZIP = b"\x1f\x8b"
_PAGE = 1 << 12  # bytes read at once where records are longer than that, and many more where not
_BLOCK = 1 << 16
_LENGTHS = 1 << 16  # of which the sizes are kept


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with a file.

    Parameters
    ----------
    path
        The file.
    what
        What is wrong.
    is_sure
        Whether the trainer refuses the file, too: not where only this machine cannot read it.
    """

    path: Path
    what: str
    is_sure: bool = True


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted.

    Parameters
    ----------
    files
        How many there are.
    records
        In all of them, or as many as were counted; None where a file is packed or damaged.
    is_all
        Whether there are no more.
    damaged
        What is wrong with which file.
    empty
        Files of 0 bytes.
    """

    files: int
    records: int | None
    is_all: bool = True
    damaged: tuple[Damage, ...] = ()
    empty: tuple[Path, ...] = ()


class _Damaged(Exception):
    """What is wrong with a file."""


def count(files: Iterable[Path], most: int = MOST, *, until: float | None = None) -> Counted:
    """Count the records of files, no more than `most`.

    Parameters
    ----------
    files
        The files; one packed by GZIP is not read.
    until
        The time by `time.monotonic` after which no more are counted; `SECONDS` from now, if not
        given.
    """
    paths = tuple(files)
    counting = _Counting(most, time.monotonic() + SECONDS if until is None else until)
    for path in paths:
        counting.take(path)
    is_known = not counting.is_packed and not counting.damaged
    return Counted(
        len(paths),
        min(counting.records, most) if is_known else None,
        not counting.is_over and counting.records <= most,
        tuple(counting.damaged),
        tuple(counting.empty),
    )


class _Counting:
    def __init__(self, most: int, until: float) -> None:
        self.records = 0
        self.is_over = self.is_packed = False
        self.damaged: list[Damage] = []
        self.empty: list[Path] = []
        self._most = most
        self._until = until
        self._sizes: dict[bytes, int] = {}

    def take(self, path: Path) -> None:
        """Count a file's records, or note why that cannot be done."""
        if self._is_late:
            self.is_over = True
            return
        try:
            with path.open("rb", buffering=0) as file:
                self._read(file, path)
        except OSError as problem:
            said = (problem.strerror or str(problem)).lower()
            self.damaged.append(Damage(path, f"cannot be read ({said})", is_sure=False))

    def _read(self, file: BinaryIO, path: Path) -> None:
        if file.read(len(_GZIP)) == _GZIP:
            self.is_packed = True
            return
        size = _size(file)
        if not size:
            self.empty.append(path)
        try:
            self._walk(file, size)
        except _Damaged as problem:
            is_whole = _size(file) == size
            what = str(problem) if is_whole else "something changes it while it is read"
            self.damaged.append(Damage(path, what, is_sure=is_whole))

    def _walk(self, file: BinaryIO, size: int) -> None:
        """Go from record to record, as the trainer does; where it would stop, this stops.

        The lengths are read a block at a time, and no map of the file into memory: that would end
        this process where something cuts the file off meanwhile.
        """
        at, number, wanted, sizes = 0, 0, _PAGE, self._sizes
        while at < size:
            if number and self._is_enough(number):
                break
            file.seek(at)
            block = file.read(wanted)
            place, before, last = 0, number, len(block) - _HEADER.size
            while place <= last:
                header = block[place : place + _HEADER.size]
                if header not in sizes:
                    self._learn(header, number, at + place)
                place += sizes[header]
                number += 1
            if number == before:
                raise _Damaged(
                    f"it is cut off: it ends at byte {size:,}, in the header of record {number:,}"
                )
            at += place
            wanted = _BLOCK if place < _PAGE * (number - before) else _PAGE
        if at > size:
            raise _Damaged(
                f"it is cut off: record {number - 1:,} should end at byte {at:,}, and the file "
                f"ends at {size:,}"
            )
        self.records += number

    def _is_enough(self, number: int) -> bool:
        self.is_over = self.records + number > self._most or self._is_late
        return self.is_over

    @property
    def _is_late(self) -> bool:
        return time.monotonic() > self._until

    def _learn(self, header: bytes, number: int, at: int) -> None:
        """Keep the size of the records that have this header, if its checksum is right."""
        length, checksum = _HEADER.unpack(header)
        if checksum != masked_crc(header[:8]):
            raise _Damaged(
                f"the checksum of the length of record {number:,}, at byte {at:,}, is another"
                if number
                else "it holds no TFRecords: the checksum of the first length is another"
            )
        if len(self._sizes) == _LENGTHS:
            self._sizes.clear()
        self._sizes[header] = length + _AROUND


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C (Castagnoli) that TFRecord files carry."""
    crc, table = 0xFFFFFFFF, _table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    return tuple(map(_shifted, range(256)))


def _shifted(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte
