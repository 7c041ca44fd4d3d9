"""Where the records of a TFRecord file begin.

A record is its length (8 bytes, little endian), the masked CRC-32C of the length (4), the data, and
the masked CRC-32C of the data (4)
(https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details). The start of a
record follows only from the one before, and a step of Python takes longer than reading a short
record. So numpy first finds all that looks like a header in a block of the file: six zero bytes,
the upper ones of a short length, followed by a valid checksum.

Not each of these is a header: a record's data may be a TFRecord file itself. But where one leads
exactly to the next and so on they are a *run*, and if the first is a header, so are the others. The
scanner skips a run at its first record, and scans record by record from the last one to the next
run. What is unusual, such as a long record or a damaged length, is in no run and so is scanned
record by record.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from .errors import DataError

_HEADER = struct.Struct("<QI")
_FRAME_BYTES = 16
"""Bytes of a record that are not its data."""

_BLOCK = 4 << 20
_MARGIN = 64
"""Room before a block for the end of the one before; systems copy fastest to such a multiple."""

_SHORT = 1 << 16
"""A record in a run has less data than this."""
_SEARCHED_BYTES = 1024
_SEARCHED_FINDS = 4
"""With more bytes a record, or more finds, record by record is faster than a search for runs."""


def _crc_table() -> np.ndarray:
    values = np.arange(256)
    for _ in range(8):
        values = (values >> 1) ^ np.where(values & 1, 0x82F63B78, 0)
    return values


_CRC_TABLE = _crc_table()


def masked_crc(data: bytes | np.ndarray) -> int | np.ndarray:
    """Return the masked CRC-32C (Castagnoli) that TFRecord files carry.

    Of an array, that of each column.
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc = crc ^ 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _crcs_of_short_lengths() -> np.ndarray:
    lengths = np.arange(_SHORT, dtype="<u8")
    columns = lengths.view(np.uint8).reshape(-1, 8).T
    return masked_crc(columns.astype(np.int64)).astype(np.uint32)


_CRCS = _crcs_of_short_lengths()


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
        self._search = True
        # Places are those in a block's memory; the file has this byte at its beginning.
        self._origin = -_MARGIN
        self._at = _MARGIN

    def scan(self, readinto: Callable[[memoryview], int]) -> None:
        """Scan all that ``readinto`` reads, to its end.

        Raises
        ------
        DataError
            If a length does not match its checksum, or the last record is not whole; names the
            byte offset.
        """
        with ThreadPoolExecutor(1) as reader:
            for block in self._blocks(readinto, reader):
                self._scan_block(block)
        if self._at != _MARGIN:
            raise DataError(
                f"{self._path} is cut off: record {max(self.records - 1, 0)} should end at byte "
                f"{self._origin + max(self._at, _MARGIN + 1)}, the file ends at "
                f"{self._origin + _MARGIN}; write the file again"
            )

    def _blocks(
        self, readinto: Callable[[memoryview], int], reader: ThreadPoolExecutor
    ) -> Iterator[_Block]:
        """Read blocks, each while the one before is scanned."""
        block, ahead = _Block(), _Block()
        block.fill(readinto, ahead, search=True)
        while block.size:
            filling = reader.submit(ahead.fill, readinto, block, search=self._search)
            yield block
            filling.result()
            block, ahead = ahead, block

    def _scan_block(self, block: _Block) -> None:
        """Scan the records whose headers end in the block."""
        before, runs = self.records, block.runs()
        while self._at <= block.last:
            if self._at in runs.spans:
                self._skip_run(runs)
            self._scan_records(block, runs)
        self._origin += block.size
        self._at -= block.size
        scanned = self.records - before
        self._search = (
            block.size < _SEARCHED_BYTES * scanned and runs.finds < _SEARCHED_FINDS * scanned
        )

    def _skip_run(self, runs: _Runs) -> None:
        """Go to the last record of the run that begins here."""
        first, last = runs.spans[self._at]
        self._add(runs.starts[first:last])
        self._at = int(runs.starts[last])

    def _scan_records(self, block: _Block, runs: _Runs) -> None:
        """Scan record by record, to the start of a run or the end of the block."""
        memory, last, spans, sizes = block.memory, block.last, runs.spans, self._sizes
        at, starts = self._at, []
        while at <= last:
            header = memory[at : at + _HEADER.size]
            if header not in sizes:
                self._check(header, self._origin + at, self.records + len(starts))
            starts.append(at)
            at += sizes[header]
            if at in spans:
                break
        self._add(np.array(starts, np.int64))
        self._at = at

    def _add(self, starts: np.ndarray) -> None:
        """Count records that begin at these places, and keep offsets."""
        kept = starts[-self.records % self._every :: self._every]
        self.offsets.frombytes((self._origin + kept).tobytes())
        self.records += len(starts)

    def _check(self, header: bytes, offset: int, record: int) -> None:
        """Keep what size the records with this header have, if its checksum is right."""
        length, crc = _HEADER.unpack(header)
        if crc != (_CRCS[length] if length < _SHORT else masked_crc(header[:8])):
            raise DataError(
                f"{self._path} is damaged at byte {offset} (record {record}): the length's "
                f"checksum does not match; write the file again"
            )
        if len(self._sizes) == _SHORT:
            self._sizes.clear()
        self._sizes[header] = length + _FRAME_BYTES


@dataclass(frozen=True)
class _Runs:
    """Runs of short records in a block.

    Attributes
    ----------
    starts
        Where the records of all runs begin.
    spans
        For the place where a run begins: the numbers of its first and its last record.
    finds
        How many places looked like a header at first sight.
    """

    starts: np.ndarray
    spans: dict[int, tuple[int, int]]
    finds: int


class _Block:
    """A block of a file, in memory that is used again.

    It begins at ``_MARGIN``; before it lies the end of the block before.
    """

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, _MARGIN + _BLOCK + _FRAME_BYTES)
        self.size = 0
        self._small = _NONE

    @property
    def last(self) -> int:
        """The last place where a header can begin that ends in the block."""
        return _MARGIN + self.size - _HEADER.size

    def fill(self, readinto: Callable[[memoryview], int], before: _Block, *, search: bool) -> None:
        """Read the block that comes after ``before``, and search it for headers if requested."""
        self.memory[:_MARGIN] = before.memory[before.size : before.size + _MARGIN]
        self.size = readinto(memoryview(self.memory)[_MARGIN : _MARGIN + _BLOCK])
        self._words = np.frombuffer(self.memory, "<u4", self.size // 4 + 2, _MARGIN - 8)
        self._small = np.packbits(self._words < 1 << 8) if search else _NONE

    def _zeros(self) -> np.ndarray:
        """Return where headers would begin that have the zero bytes of a short length.

        Six in a row fill the upper three bytes of some word in memory. The byte behind them, which
        is the first of the checksum, is in the next word.
        """
        small = self._small
        last = _set_bits(small & ~(small << 1 | np.append(small[1:] >> 7, np.uint8(0))))
        behind = self._words[1:].take(last, mode="clip")
        zeros = sum((behind << shift == 0).view(np.uint8) for shift in (24, 16, 8))
        return 4 * last + (_MARGIN - _HEADER.size) + zeros

    def runs(self) -> _Runs:
        """Return the runs among the headers that end in the block."""
        headers = np.ndarray(_MARGIN + self.size, "V16", self.memory, strides=1)
        starts = self._zeros()
        candidates = headers[starts]
        right = _is_right(candidates)
        # Where a checksum itself begins with a zero byte, the header begins a byte earlier.
        wrong = np.flatnonzero(~right)
        starts[wrong] -= 1
        candidates[wrong] = headers[starts[wrong]]
        right[wrong] = _is_right(candidates[wrong])
        right &= (starts > _MARGIN - _HEADER.size) & (starts <= self.last)
        if not right.all():
            starts, candidates = starts[right], candidates[right]
        ends = starts + _short_lengths(candidates) + _FRAME_BYTES
        breaks = np.flatnonzero(ends[:-1] != starts[1:])
        first, last = np.append(0, breaks + 1), np.append(breaks, len(starts) - 1)
        several = first < last
        first, last = first[several], last[several]
        spans = zip(first.tolist(), last.tolist(), strict=True)
        return _Runs(starts, dict(zip(starts[first].tolist(), spans, strict=True)), len(right))


_NONE = np.empty(0, np.uint8)


def _set_bits(bits: np.ndarray) -> np.ndarray:
    """Return which bits are set; quickest where no byte has more than one."""
    some = np.flatnonzero(bits != 0)
    place = _PLACE.take(bits.take(some))
    return 8 * some + place if place.max(initial=0) < 8 else np.flatnonzero(np.unpackbits(bits))


_PLACE = np.array([8 if n & (n - 1) else 8 - n.bit_length() for n in range(256)], np.uint8)
"""Which bit of a byte is set, counted from the highest; 8 where several are."""


def _is_right(headers: np.ndarray) -> np.ndarray:
    """Return which headers have a short length and its checksum."""
    lengths, crcs = headers.view("<u8")[::2], headers.view("<u4")[2::4]
    return (lengths < _SHORT) & (_CRCS.take(_short_lengths(headers)) == crcs)


def _short_lengths(headers: np.ndarray) -> np.ndarray:
    return headers.view("<u2")[::8]
