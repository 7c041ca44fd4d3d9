from __future__ import annotations

import io
import struct
from contextlib import contextmanager
from functools import cache
from itertools import cycle

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trainer.distributed import chain
from trainer.distributed.chain import Walk, masked_crc
from trainer.distributed.errors import DataError

EVERY = 8

checksum = cache(masked_crc)


def framed(data: bytes) -> bytes:
    """A record; nothing looks at the checksum of its data here."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", checksum(length)) + data + b"data"


def joined(records: list[bytes]) -> bytes:
    return b"".join(framed(data) for data in records)


def plain_walk(content: bytes) -> tuple[int, list[int]]:
    """What a walk does, as simply as can be."""
    at, starts = 0, []
    while at + 12 <= len(content):
        length, crc = struct.unpack_from("<QI", content, at)
        if checksum(content[at : at + 8]) != crc:
            raise DataError(
                f"data is damaged at byte {at} (record {len(starts)}): the length's checksum does "
                f"not match; write the file again"
            )
        starts.append(at)
        at += length + 16
    if at != len(content):
        raise DataError(
            f"data is cut off: record {max(len(starts) - 1, 0)} should end at byte "
            f"{max(at, len(content) + 1)}, the file ends at {len(content)}; write the file again"
        )
    return len(starts), starts[::EVERY]


def walk(content: bytes, reads: list[int]) -> tuple[int, list[int]]:
    """Walk along ``content``, of which so many bytes at a time can be read."""
    stream, sizes = io.BytesIO(content), cycle(reads)
    walk = Walk("data", EVERY)
    walk.follow(lambda room: stream.readinto(room[: next(sizes)]))
    return walk.records, walk.offsets.tolist()


def end_of(way, *arguments):
    try:
        return way(*arguments)
    except DataError as error:
        return str(error)


def check_end(content: bytes, reads: list[int], always: bool):
    """Check that a walk ends as a plain one does; return how."""
    with searching(always):
        end = end_of(walk, content, reads)
    assert end == end_of(plain_walk, content)
    return end


def noise(size: int, seed: int) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def numbers(count: int, kind: str) -> bytes:
    return np.arange(250, 250 + count).astype(kind).tobytes()


def short_lengths() -> st.SearchStrategy[int]:
    # 65 and 97 have a checksum that begins with a zero byte, 3760 one that begins with two.
    return st.integers(0, 40) | st.integers(0, 700) | st.sampled_from([65, 97, 255, 256, 3760])


def plain_records() -> st.SearchStrategy[bytes]:
    return (
        st.builds(noise, short_lengths(), st.integers(0, 9))
        | st.builds(bytes, short_lengths())
        | st.builds(numbers, st.integers(0, 60), st.sampled_from(["<i8", "<i4", "<i2"]))
        | st.sampled_from([bytes(65_535), bytes(65_536), framed(b"")[:-4], framed(b"")[:12]])
    )


records = st.lists(
    st.recursive(plain_records(), lambda inner: st.lists(inner, max_size=6).map(joined)),
    max_size=12,
)
# A few records, over and over, are enough of them for many runs.
files = st.builds(lambda some, times: joined(some * times), records, st.integers(1, 20))
# One read a file may be of a few bytes: each takes a block of its own.
reads = st.builds(
    lambda some, sizes: [*sizes, some, 1 << 22],
    st.integers(1, 20),
    st.lists(st.integers(500, 20_000), max_size=3),
)


@contextmanager
def searching(always: bool):
    """Every block is searched for runs, or those alone where that is quicker than to step."""
    with pytest.MonkeyPatch.context() as patch:
        if always:
            patch.setattr(chain, "_SEARCHED_BYTES", 1 << 40)
            patch.setattr(chain, "_SEARCHED_FINDS", 1 << 40)
        yield


@settings(max_examples=30)
@given(files, reads, st.booleans())
@example(joined([bytes(100)] * 50), [1 << 22], True)
@example(joined([joined([b"in"] * 5)] * 50), [1 << 22], True)
def test_a_walk_finds_what_a_plain_one_finds(content, reads, always):
    assert not isinstance(check_end(content, reads, always), str)


@settings(max_examples=30)
@given(files.filter(len), reads, st.booleans(), st.data())
def test_damaged_files_have_the_same_end(content, reads, always, data):
    """Cut off, shifted, with a byte of it changed, and with a byte of a length changed."""
    at = data.draw(st.integers(0, len(content) - 1))
    check_end(content[:at], reads, always)
    check_end(content[at:] + content[:at], reads, always)
    check_end(with_changed_byte(content, at), reads, always)
    _, starts = plain_walk(content)
    at = data.draw(st.sampled_from(starts)) + data.draw(st.integers(0, 11))
    assert "is damaged at byte" in check_end(with_changed_byte(content, at), reads, always)


def with_changed_byte(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :]
