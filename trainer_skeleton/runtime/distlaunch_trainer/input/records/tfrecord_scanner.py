"""Where the records of a TFRecord file begin.

A record is its length (8 bytes, little endian), the masked CRC-32C of the length (4), the data, and
the masked CRC-32C of the data (4)
(https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details). The start of a
record follows only from the one before, so the headers are read one by one; of a file that is
mapped into memory the data between them are not read at all.
"""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from typing import BinaryIO

from distlaunch_trainer.errors import DataError

_HEADER = struct.Struct("<QI")
_FRAME_BYTES = 16
"""Bytes of a record that are not its data."""

_BLOCK = 4 << 20
_MOST_SIZES = 1 << 16
"""Headers whose checksum is known, by which a record takes one look."""


def _crc_table() -> list[int]:
    values = list(range(256))
    for _ in range(8):
        values = [(value >> 1) ^ (0x82F63B78 if value & 1 else 0) for value in values]
    return values


_CRC_TABLE = _crc_table()


def masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C (Castagnoli) that TFRecord files carry."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


class RecordScanner:
    """Finds where the records of a file begin.

    Attributes
    ----------
    records
        Number of records so far.
    offsets
        Byte offset of each record whose number is a multiple of ``every``.
    """

    def __init__(self, path: str, every: int) -> None:
        self.records = 0
        self.offsets = array("q")
        self._path = path
        self._every = every
        self._sizes: dict[bytes, int] = {}
        self._next = 0  # the byte offset of the next record

    def scan_mapped(self, file: BinaryIO) -> None:
        """Scan a local file.

        Raises
        ------
        DataError
            If a length does not match its checksum, or the last record is not whole; names the
            byte offset.
        """
        size = os.fstat(file.fileno()).st_size
        if size:
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as memory:
                self._scan(memory, 0)
        self._finish(size)

    def scan_stream(self, stream: BinaryIO) -> None:
        """Scan what a stream has, to its end; see `scan_mapped`."""
        origin, rest = 0, b""
        while block := stream.read(_BLOCK):
            memory = rest + block
            self._scan(memory, origin)
            origin += len(memory)
            rest = memory[len(memory) - max(0, origin - self._next) :]
            origin -= len(rest)
        self._finish(origin + len(rest))

    def _scan(self, memory: bytes | mmap.mmap, origin: int) -> None:
        """Scan the records whose headers lie in memory, which begins at a byte of the file."""
        sizes, every = self._sizes, self._every
        at, number, last = self._next - origin, self.records, len(memory) - _HEADER.size
        while at <= last:
            header = memory[at : at + _HEADER.size]
            if header not in sizes:
                self._check(header, origin + at, number)
            if not number % every:
                self.offsets.append(origin + at)
            number += 1
            at += sizes[header]
        self._next, self.records = origin + at, number

    def _finish(self, size: int) -> None:
        if self._next != size:
            raise DataError(
                f"{self._path} is cut off: record {max(self.records - 1, 0)} should end at byte "
                f"{max(self._next, size + 1)}, the file ends at {size}; write the file again"
            )

    def _check(self, header: bytes, offset: int, record: int) -> None:
        """Keep what size the records with this header have, if its checksum is right."""
        length, crc = _HEADER.unpack(header)
        if crc != masked_crc(header[:8]):
            raise DataError(
                f"{self._path} is damaged at byte {offset} (record {record}): the length's "
                f"checksum does not match; write the file again"
            )
        if len(self._sizes) == _MOST_SIZES:
            self._sizes.clear()
        self._sizes[header] = length + _FRAME_BYTES
