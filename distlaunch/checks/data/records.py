"""How many records there are in TFRecord files, counted without reading their data.

A record is its length (8 bytes, little endian), a checksum of the length (4), the data, and a
checksum of the data (4)
(https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details).
"""

from __future__ import annotations

import mmap
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
_AT_ONCE = 250  # records between two looks at the clock, for each may be a page of a slow disk


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
    """

    files: int
    records: int | None
    is_all: bool = True
    damaged: tuple[tuple[Path, str], ...] = ()


class _Damaged(Exception):
    """What is wrong with a file."""


def count(files: Iterable[Path], most: int = MOST) -> Counted:
    """Count the records of files, `most` of them at least where there are as many.

    Parameters
    ----------
    files
        The files; one packed by GZIP is not read.
    """
    paths, counting = tuple(files), _Counting(most)
    for path in paths:
        counting.take(path)
    is_known = not counting.is_packed and not counting.damaged
    return Counted(
        len(paths),
        counting.records if is_known else None,
        not counting.is_over,
        tuple(counting.damaged),
    )


class _Counting:
    def __init__(self, most: int) -> None:
        self.records = 0
        self.is_over = self.is_packed = False
        self.damaged: list[tuple[Path, str]] = []
        self._most = most
        self._end = time.monotonic() + SECONDS

    def take(self, path: Path) -> None:
        """Count a file's records, or note why that cannot be done."""
        try:
            self._read(path)
        except _Damaged as problem:
            self.damaged.append((path, str(problem)))
        except OSError as problem:
            said = (problem.strerror or str(problem)).lower()
            self.damaged.append((path, f"cannot be read ({said})"))

    def _read(self, path: Path) -> None:
        with path.open("rb") as file:
            start = file.read(_HEADER.size)
            if start.startswith(_GZIP):
                self.is_packed = True
            elif start and not self.is_over:
                _check(start)
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    self._walk(data)

    def _walk(self, data: mmap.mmap) -> None:
        at, size, number = 0, len(data), 0
        unpack, last = _HEADER.unpack_from, size - _HEADER.size
        while at <= last:
            if not number % _AT_ONCE and self._is_enough(number):
                return
            at += unpack(data, at)[0] + _AROUND
            number += 1
        if at != size:
            raise _Damaged(
                f"record {max(number - 1, 0):,} should end at byte {max(at, size + 1):,}, and the "
                f"file ends at {size:,}"
            )
        self.records += number

    def _is_enough(self, number: int) -> bool:
        found = self.records + number
        self.is_over = found >= self._most or time.monotonic() > self._end
        if self.is_over:
            self.records = found
        return self.is_over


def _check(header: bytes) -> None:
    """See that a file begins with a record: any bytes can be taken for a length."""
    if len(header) < _HEADER.size:
        raise _Damaged("it is too short for a record")
    _, checksum = _HEADER.unpack(header)
    if checksum != masked_crc(header[:8]):
        raise _Damaged("it holds no TFRecords: the checksum of the first length is another")


def masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C (Castagnoli) that TFRecord files carry."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF
